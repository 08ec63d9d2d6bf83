#include "evaluators/programs/program_outcome.h"

#include <re2/re2.h>
#include <signal.h>

#include <array>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::evaluators {
namespace {

using End = BoxResult::End;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool says_out_of_memory(const BoxResult& r) {
  constexpr std::array kTexts = {"MemoryError",          "bad_alloc",
                                 "OutOfMemoryError",     "heap out of memory",
                                 "memory allocation of", "Array buffer allocation failed",
                                 "out of memory",        "Cannot allocate memory"};
  for (const char* text : kTexts)
    if (contains(r.err, text) || contains(r.out, text)) return true;
  return false;
}

std::string ending(const BoxResult& r) {
  if (r.end == End::kSignalled) return fmt::format("signal {}", r.signal);
  return fmt::format("exit code {}", r.exit_code);
}

// Killed from outside.
std::optional<ProgramOutcome> stopped(const BoxResult& r) {
  switch (r.end) {
    case End::kTimeout:
      return ProgramOutcome{"timeout", "wall clock"};
    case End::kMemory:
      return ProgramOutcome{"memory", "all processes together"};
    case End::kOutput:
      return ProgramOutcome{"output_limit", "standard output or error"};
    case End::kControlFlood:
      return ProgramOutcome{"output_limit", "control channel"};
    default:
      return std::nullopt;
  }
}

std::optional<ProgramOutcome> judge_compiler(const BoxResult& r) {
  if (r.end == End::kExited && r.exit_code == 0) return std::nullopt;
  if (const auto why = stopped(r)) return ProgramOutcome{"compile_error", why->status};
  if (says_out_of_memory(r)) return ProgramOutcome{"compile_error", "memory"};
  return ProgramOutcome{"compile_error", ending(r)};
}

std::string failure(const BoxResult& r) {
  if (r.end == End::kSignalled && r.signal != SIGABRT) return ending(r);
  for (const char* text : {"AssertionError", "Assertion failed", "Assertion `", "assertion failed",
                           "Error Trace:", "java.lang.Exception"})
    if (contains(r.err, text) || contains(r.out, text)) return "assertion";
  for (const char* text : {"Traceback", "Exception", "panic", "terminate called", "Error:"})
    if (contains(r.err, text) || contains(r.out, text)) return "exception";
  return ending(r);
}

// The last "N passed" that the test harness of Rust wrote.
int tests_passed(const std::string& out) {
  static const re2::RE2 count(R"(test result: \w+\. (\d+) passed)", re2::RE2::Latin1);
  re2::StringPiece rest(out);
  int n = 0;
  while (re2::RE2::FindAndConsume(&rest, count, &n)) {
  }
  return n;
}

}  // namespace

ProgramOutcome judge(const Language& language, const BoxResult* compile, const BoxResult* run,
                     const std::string& nonce) {
  for (const BoxResult* r : {compile, run})
    if (r != nullptr && r->end == End::kBroken) return {"sandbox_error", r->problem};
  if (compile != nullptr)
    if (const auto verdict = judge_compiler(*compile)) return *verdict;
  EVALRUN_CHECK(run != nullptr);
  const BoxResult& r = *run;
  std::string control = r.control;
  if (nonce.empty()) control.clear();
  // Programs that compile themselves say so first.
  const bool compiled = control.starts_with("C");
  const bool own_compiler = language.compiles_itself;
  if (own_compiler && !compiled) {
    if (const auto why = stopped(r)) return {"compile_error", why->status};
    return {"compile_error", says_out_of_memory(r) ? "memory" : ending(r)};
  }
  if (const auto verdict = stopped(r)) return *verdict;
  if (own_compiler) control.erase(0, 1);
  if (r.end == End::kSignalled && r.signal == SIGXCPU) return {"timeout", "processor time"};
  // The helper's second limit, a second after SIGXCPU was ignored; we ourselves kill PID 1 instead.
  if (r.end == End::kSignalled && r.signal == SIGKILL &&
      r.cpu_ms.value_or(0) >= r.cpu_limit_s * 1e3)
    return {"timeout", "processor time"};
  const bool good_exit = r.end == End::kExited && r.exit_code == 0;
  if (r.end == End::kSignalled && r.signal == SIGXFSZ) return {"output_limit", "file size"};
  // Go's runtime catches these signals and says so.
  if (!good_exit && contains(r.err, "SIGXCPU: ")) return {"timeout", "processor time"};
  if (!good_exit && contains(r.err, "SIGXFSZ: ")) return {"output_limit", "file size"};
  if (!good_exit && (contains(r.err, "File too large") || contains(r.err, "file too large") ||
                     contains(r.err, "EFBIG")))
    return {"output_limit", "file size"};
  if (!good_exit && says_out_of_memory(r)) return {"memory", ending(r)};
  if (!control.empty() && control != nonce && !(language.must_be_silent && control == "N"))
    return {"failed", "tampering"};
  if (!good_exit) return {"failed", failure(r)};
  if (language.must_be_silent && control == "N") return {"no_tests", "no assertion was reached"};
  if (control.empty()) {
    // console.assert does not stop a program: it ends well, and says what failed.
    if (language.must_be_silent && contains(r.err, "Assertion failed"))
      return {"failed", "assertion"};
    return {"failed", "early_exit"};
  }
  if (language.counts_tests && tests_passed(r.out) < 2) return {"no_tests", "the test is empty"};
  if (language.must_be_silent && !(r.out.empty() && r.err.empty())) return {"failed", "printed"};
  return {"passed", ""};
}

bool looks_suspicious(std::string_view code) {
  static const re2::RE2 pattern(
      R"(\b_?exit\s*\(|_getframe|\binspect\b|\bimport gc\b|\bgc\.|ctypes|/proc/|/dev/fd|atexit)"
      R"(|settrace|setprofile|__eq__|builtins|\bsignal\b|os\.write|writeSync|process\.exit)"
      R"(|\bunsafe\b|reflect|getDeclared|sys\.modules|SystemExit|excepthook|AssertionError)"
      R"(|console\.assert|NDEBUG|#\s*(?:define|undef)\b|__assert_fail|System\.exit|\.halt\s*\(|os\.Exit)"
      R"(|operator\s*[=!]=|boolean\s+equals\b|PartialEq|co_consts|f_back|f_code|tb_frame)"
      R"(|__traceback__|_current_frames|from gc|\bexec[lv]|open\(\s*3\b|getOwnPropert|ownKeys)"
      R"(|reallyExit|arguments\.callee|process\s*\[)",
      re2::RE2::Latin1);
  EVALRUN_CHECK(pattern.ok());
  return re2::RE2::PartialMatch({code.data(), code.size()}, pattern);
}

}  // namespace evalrun::evaluators
