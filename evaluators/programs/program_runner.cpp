#include "evaluators/programs/program_runner.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/base/text.h"
#include "evaluators/programs/program_outcome.h"
#include "evaluators/programs/result_cache.h"
#include "evaluators/programs/tool_folders.h"

namespace evalrun::evaluators {

using datasets::CodeProblem;
using nlohmann::json;

namespace {

constexpr size_t kMaxProgram = size_t{512} << 10;
constexpr size_t kOutputKept = 2048;
constexpr int kCacheVersion = 2;  // bump when verdicts of the same program change

std::string random_hex(size_t bytes) {
  std::array<unsigned char, 16> raw{};
  EVALRUN_CHECK(bytes <= raw.size() &&
                ::getrandom(raw.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += fmt::format("{:02x}", raw[i]);
  return text;
}

BoxLimits compile_limits() {
  BoxLimits l;
  l.data = l.tree_memory = int64_t{3} << 29;
  l.processes = 64;
  l.file_bytes = int64_t{64} << 20;
  l.open_files = 256;
  l.tmp_bytes = int64_t{256} << 20;
  return l;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string cache_root(const ScoringContext& context) {
  if (!context.cache_folder.empty()) return context.cache_folder;
  const std::string home = base::home_folder().string();
  if (home.empty())
    throw base::Error(base::ExitCode::kEnvironment, "no place for prepared toolchains",
                      "set EVALRUN_HOME or HOME");
  return home;
}

json to_json(const ProgramResult& r) {
  json j = {{"status", r.status},         {"detail", r.detail},     {"suspicious", r.suspicious},
            {"toolchain", r.toolchain},   {"sandbox", r.sandbox},   {"wall_ms", r.wall_ms},
            {"compile_ms", r.compile_ms}, {"peak_rss", r.peak_rss}, {"exit_code", r.exit_code},
            {"signal", r.signal},         {"output", r.output}};
  if (r.cpu_ms) j["cpu_ms"] = *r.cpu_ms;
  return j;
}

// Everything but the limits, which the caller knows.
bool read_json(const std::string& text, ProgramResult& r) {
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object()) return false;
  try {
    r.status = j.at("status");
    r.detail = j.at("detail");
    r.suspicious = j.at("suspicious");
    r.toolchain = j.at("toolchain");
    r.sandbox = j.at("sandbox");
    r.wall_ms = j.at("wall_ms");
    r.compile_ms = j.at("compile_ms");
    r.peak_rss = j.at("peak_rss");
    r.exit_code = j.at("exit_code");
    r.signal = j.at("signal");
    r.output = j.at("output");
    if (j.contains("cpu_ms")) r.cpu_ms = j.at("cpu_ms").get<double>();
  } catch (const json::exception&) {
    return false;  // a damaged file: run it again
  }
  return true;
}

class Execution {
 public:
  Execution(Sandbox& sandbox, const Language& language, const Assembly& program,
            std::string tool_folder, const TimeLimits& limits)
      : sandbox_(sandbox),
        language_(language),
        program_(program),
        tool_folder_(std::move(tool_folder)),
        limits_(limits) {}

  void run(ProgramResult& result) {
    const auto job = sandbox_.open_job();
    const Secrets secrets{random_hex(16), "assert_" + random_hex(8), "done_" + random_hex(8)};
    Commands commands = language_.commands(
        program_, secrets,
        {sandbox_.job_path(*job), tool_folder_.empty() ? "" : sandbox_.tool_path(tool_folder_),
         sandbox_.kind() != Sandbox::Kind::kNone});
    for (const auto& [name, text] : commands.files) job->write(name, text);
    std::optional<BoxResult> compiled, ran;
    double left = limits_.run_s;
    if (commands.compile) {
      BoxRequest& compile = *commands.compile;
      compile.limits = compile_limits();
      compile.limits.wall_s = limits_.together ? limits_.run_s : limits_.compile_s;
      compile.tool_folder = tool_folder_;
      compile.job_writable = true;
      compiled = sandbox_.run(*job, compile);
      if (limits_.together) left = std::max(0.05, left - compiled->wall_ms * 1e-3);
    }
    const bool compiles =
        !compiled || (compiled->end == BoxResult::End::kExited && compiled->exit_code == 0);
    if (compiles) {
      if (commands.compile) job->keep_only_program();
      BoxRequest& request = commands.run;
      request.limits = language_.run_limits;
      request.limits.wall_s = left;
      request.tool_folder = tool_folder_;
      request.compile_wall_s = limits_.together ? left : limits_.compile_s;
      if (limits_.together) request.compiles_first = false;
      ran = sandbox_.run(*job, request);
    }
    note(compiled ? &*compiled : nullptr, ran ? &*ran : nullptr, secrets.nonce, result);
  }

 private:
  void note(const BoxResult* compiled, const BoxResult* ran, const std::string& nonce,
            ProgramResult& result) const {
    const ProgramOutcome verdict = judge(language_, compiled, ran, nonce);
    result.status = verdict.status;
    result.detail = verdict.detail;
    const BoxResult& last = ran != nullptr ? *ran : *compiled;
    result.compile_ms = compiled != nullptr ? compiled->wall_ms : last.compile_ms;
    result.wall_ms = ran != nullptr ? last.wall_ms - last.compile_ms : 0;
    result.cpu_ms.reset();
    if (last.cpu_ms)
      result.cpu_ms =
          *last.cpu_ms + (compiled != nullptr && ran != nullptr ? compiled->cpu_ms.value_or(0) : 0);
    result.peak_rss = last.peak_rss;
    result.exit_code = last.exit_code;
    result.signal = last.signal;
    result.output = (last.err + (last.err.empty() ? "" : "\n") + last.out).substr(0, kOutputKept);
  }

  Sandbox& sandbox_;
  const Language& language_;
  const Assembly& program_;
  std::string tool_folder_;
  TimeLimits limits_;
};

// Once more when the sandbox itself failed: a machine at its limits may have had no process left.
void execute(const ScoringContext& context, const Language& language, const Assembly& program,
             const std::string& root, ProgramResult& result) {
  const std::shared_ptr<Sandbox> sandbox = shared_sandbox(context);
  const std::string tools = prepare_tool_folder(*sandbox, language, toolchain_of(language), root);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      Execution(*sandbox, language, program, tools, result.limits).run(result);
    } catch (const base::Error& error) {
      result.status = "sandbox_error";
      result.detail = error.message();
    } catch (const std::exception& error) {  // a full disk, no memory, no thread
      result.status = "sandbox_error";
      result.detail = error.what();
    }
    if (result.status != "sandbox_error") return;
  }
}

}  // namespace

TimeLimits time_limits(const CodeProblem& problem, CodeConvention convention) {
  switch (convention) {
    case CodeConvention::kEvalrun:
      return {};
    case CodeConvention::kCodegeex:
      // The default of its script; its Python functions have 3 and 500 s as defaults.
      return {5, 5, true};
    case CodeConvention::kBigcode: {
      if (problem.set != CodeProblem::Set::kHumanEvalX) return {3, 3, true};
      const std::map<std::string, double> seconds = {{"python", 10}, {"js", 10}, {"java", 10},
                                                     {"cpp", 60},    {"go", 20}, {"rust", 300}};
      const auto it = seconds.find(problem.language);
      const double s = it == seconds.end() ? 10 : it->second;
      return {s, s, true};
    }
  }
  return {};
}

std::shared_ptr<Sandbox> shared_sandbox(const ScoringContext& context) {
  struct Opened {
    std::shared_ptr<Sandbox> sandbox;
    std::exception_ptr refusal;
  };
  static std::mutex mutex;
  static std::map<std::pair<bool, std::vector<std::string>>, Opened> opened;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = opened.try_emplace({context.allow_unsafe, context.read_only_folders});
  if (is_new) {
    try {
      it->second.sandbox = Sandbox::open({context.allow_unsafe, context.read_only_folders});
    } catch (...) {
      it->second.refusal = std::current_exception();
    }
  }
  if (it->second.refusal) std::rethrow_exception(it->second.refusal);
  return it->second.sandbox;
}

const Toolchain& toolchain_of(const Language& language) {
  static std::mutex mutex;
  static std::map<std::string, Toolchain> found;
  const std::lock_guard lock(mutex);
  const auto it = found.find(language.name);
  if (it != found.end()) return it->second;
  return found.emplace(language.name, language.find_toolchain()).first->second;
}

ProgramResult run_answer(const CodeProblem& problem, const Answer& answer,
                         CodeConvention convention, const ScoringContext& context) {
  ProgramResult result;
  const Language* language = languages().find(problem.language);
  const auto ended = [&](const std::string& status, const std::string& detail) {
    result.status = status;
    result.detail = detail;
    return result;
  };
  if (language == nullptr)
    return ended("toolchain_missing", "no toolchain is known for " + problem.language);
  result.limits = time_limits(problem, convention);
  result.limits.compile_s *= context.time_scale;
  result.limits.run_s *= context.time_scale;
  result.memory_limit = language->run_limits.tree_memory;
  const Toolchain& toolchain = toolchain_of(*language);
  result.toolchain = toolchain.version;
  if (!toolchain.packages.empty())
    return ended("toolchain_missing", "apt-get install " + joined(toolchain.packages));
  if (answer.code.size() > kMaxProgram)
    return ended("failed", fmt::format("an answer of {} bytes, the limit is {}", answer.code.size(),
                                       kMaxProgram));
  try {
    const std::shared_ptr<Sandbox> sandbox = shared_sandbox(context);
    result.sandbox = sandbox->name();
    const std::string root = cache_root(context);
    const Assembly program =
        language->assemble(problem, answer, {convention, context.fix_go_imports});
    const bool boxed = sandbox->kind() != Sandbox::Kind::kNone;
    const ResultCache cache(root);
    std::string key =
        fmt::format("{}\n{}\n{}\n{} {} {}\n", kCacheVersion, language->name, toolchain.version,
                    result.limits.compile_s, result.limits.run_s, result.limits.together);
    for (const auto& [name, text] : language->tool_files) key += base::sha256_hex(text);
    key = base::sha256_hex(key + program.code + '\0' + program.test);
    if (context.reuse_results && boxed)
      if (const auto known = cache.find(key); known && read_json(*known, result)) {
        result.cached = true;
        return result;
      }
    execute(context, *language, program, root, result);
    result.suspicious = result.detail == "tampering" ||
                        (result.status == "passed" && looks_suspicious(answer.code));
    // A busy machine, or one short of memory, may have caused these.
    const bool certain = result.has_value() && result.status != "timeout" &&
                         result.detail != "timeout" && result.signal != SIGKILL &&
                         result.output.find("Killed signal") == std::string::npos &&
                         result.output.find("No space left") == std::string::npos;
    if (context.reuse_results && boxed && certain)
      cache.store(key, to_json(result).dump(-1, ' ', false, json::error_handler_t::replace));
  } catch (const base::Error& error) {
    return ended("sandbox_error", error.message());
  } catch (const std::exception& error) {
    return ended("sandbox_error", error.what());
  }
  return result;
}

}  // namespace evalrun::evaluators
