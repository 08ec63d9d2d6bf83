// Errors that end a run, and checks for our own mistakes.
//
// Throw `Error` when the work cannot go on because of something a user can mend (bad file, bad
// option, missing data). The message says what was expected, what was found and where; the hint
// says what to do. Expected outcomes (no draft found, answer not extracted) are return values, not
// errors. EVALRUN_CHECK is for invariants of our own code only.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace evalrun::base {

// Process exit codes; documented in docs/exit-codes.md and README.md.
enum class ExitCode : int {
  kOk = 0,
  kRegression = 1,     // a confirmed slowdown
  kUsage = 2,          // bad command line, suite or parameter
  kNoBaseline = 3,     // baseline missing or not comparable
  kInconclusive = 4,   // not enough evidence within the budget
  kCorrectness = 5,    // outputs differ where they must not
  kEnvironment = 6,    // machine unfit to measure
  kData = 7,           // model, data or result file broken, missing or out of reach
  kDevice = 8,         // a GPU failed in the middle of the work; results kept
  kInterrupted = 130,  // Ctrl-C; results kept
};

// `what()` is the full one-screen text: message, then "hint: ..." on its own line if there is one.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string message, std::string hint = {})
      : std::runtime_error(hint.empty() ? message : message + "\n  hint: " + hint),
        code_(code),
        message_(std::move(message)),
        hint_(std::move(hint)) {}
  ExitCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

 private:
  ExitCode code_;
  std::string message_, hint_;
};

// A file that is missing, truncated, malformed or lying. `where` names the field or byte offset.
inline Error data_error(std::string_view file, std::string_view where, std::string_view what,
                        std::string hint = {}) {
  return Error(ExitCode::kData,
               where.empty() ? fmt::format("{}: {}", file, what)
                             : fmt::format("{}: {}: {}", file, where, what),
               std::move(hint));
}

// A command line, suite key, method name or parameter that does not make sense.
inline Error usage_error(std::string message, std::string hint = {}) {
  return Error(ExitCode::kUsage, std::move(message), std::move(hint));
}

// A device that failed in the middle of its work: from now on it gives errors only, until the
// process ends. Nothing that catches errors may go on with the next generation.
class DeviceFault : public Error {
 public:
  // "device cuda:0: an illegal memory access was encountered, in the forward". The remedy is part
  // of the kind: what was measured is stored.
  DeviceFault(std::string_view device, std::string_view what, std::string_view where)
      : DeviceFault(fmt::format("device {}: {}, in {}", device, what, where)) {}
  // The same with the place in a run in front.
  DeviceFault(std::string_view place, const DeviceFault& fault)
      : DeviceFault(fmt::format("{}: {}", place, fault.message())) {}

 private:
  explicit DeviceFault(std::string message)
      : Error(ExitCode::kDevice, std::move(message),
              "run the same command again: it starts the device anew and goes on after what is "
              "stored; if it fails again, see `evalrun doctor` and the kernel's log (dmesg)") {}
};

// A broken invariant of ours; thrown (not aborted) so that a sweep can record it and go on.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] inline void check_failed(const char* expr, const char* file, int line,
                                      const std::string& message) {
  throw InternalError(fmt::format("internal error at {}:{}: check '{}' failed{}{}", file, line,
                                  expr, message.empty() ? "" : ": ", message));
}

}  // namespace evalrun::base

// Always on; cheap conditions only. The message is a fmt format string with arguments.
#define EVALRUN_CHECK(cond, ...)                                                               \
  do {                                                                                         \
    if (!(cond)) [[unlikely]]                                                                  \
      ::evalrun::base::check_failed(#cond, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (0)
