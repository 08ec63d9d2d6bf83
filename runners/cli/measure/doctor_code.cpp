#include "runners/cli/measure/doctor_code.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "evaluators/evaluator.h"
#include "evaluators/programs/program_runner.h"
#include "evaluators/programs/self_check.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

using evaluators::BoxRequest;
using evaluators::BoxResult;
using evaluators::Sandbox;

struct Hostile {
  const char* name;
  const char* script;
  BoxResult::End expected;
};

// In plain shell, so that they need no toolchain. A script that succeeds in anything says so.
constexpr Hostile kHostile[] = {
    {"writing outside",
     "for f in / /usr /etc /dev /box /hx; do echo x > $f/evalrun-x && echo did; done; rm -f "
     "/usr/bin/env",
     BoxResult::End::kExited},
    {"reading outside",
     "for f in /etc/shadow /root /home /var /run /sys; do ls $f && echo did; done",
     BoxResult::End::kExited},
    {"seeing others", "kill -9 1; for p in /proc/[0-9]*; do test -e $p && echo did; done",
     BoxResult::End::kExited},
    {"network", "for d in /sys/class/net/*; do test -e $d && echo did; done",
     BoxResult::End::kExited},
    // The shell itself forks once, before the bomb has filled the box: a second fork could fail.
    {"fork bomb", "(f() { f | f & }; f) & exec sleep 9", BoxResult::End::kTimeout},
    {"endless output", "yes", BoxResult::End::kOutput},
    {"endless loop", "while :; do :; done", BoxResult::End::kTimeout},
};

CodeCheck check_containment(Sandbox& sandbox) {
  CodeCheck check{"sandbox self-test", "", ""};
  std::string broken;
  const auto job = sandbox.open_job();
  for (const Hostile& h : kHostile) {
    BoxRequest request;
    request.command = {"/bin/sh", "-c", h.script};
    request.limits.wall_s = h.expected == BoxResult::End::kTimeout ? 0.5 : 10;
    const BoxResult r = sandbox.run(*job, request);
    if (r.end != h.expected || r.out.find("did") != std::string::npos)
      broken += (broken.empty() ? "" : ", ") + std::string(h.name);
  }
  check.ok = broken.empty();
  check.problem = !check.ok;
  check.value = check.ok ? fmt::format("{} hostile programs, all contained", std::size(kHostile))
                         : "not contained: " + broken;
  if (!check.ok) check.hint = "generated code is not safe on this machine: please report";
  return check;
}

CodeCheck check_toolchain(const evaluators::Language& language) {
  const evaluators::Toolchain& found = evaluators::toolchain_of(language);
  CodeCheck check{language.title, found.version, ""};
  if (found.packages.empty()) return check;
  check.ok = false;
  check.value = found.version.empty() ? "not installed" : found.version + ", incomplete";
  check.hint = "to score its programs: apt-get install";
  for (const std::string& package : found.packages) check.hint += " " + package;
  return check;
}

std::vector<datasets::CodeProblem> problems_of(const std::string& language,
                                               const std::string& data_root, std::string& source) {
  std::vector<datasets::CodeProblem> problems;
  try {
    const datasets::LoadedDataset set =
        datasets::load_dataset("humaneval_x[" + language + "]", data_root);
    for (const datasets::Prompt& prompt : set.prompts)
      if (prompt.code != nullptr) problems.push_back(*prompt.code);
    source = "humaneval_x, " + set.verification;
  } catch (const base::Error&) {
    // No data root, or not this file: our own.
  }
  if (!problems.empty()) return problems;
  source = "our own";
  for (const datasets::CodeProblem& problem : evaluators::self_check_problems())
    if (problem.language == language) problems.push_back(problem);
  return problems;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<size_t>(q * static_cast<double>(values.size())))];
}

void run_solutions(const std::vector<datasets::CodeProblem>& problems, int workers,
                   SolutionCheck& check) {
  constexpr auto kConvention = evaluators::CodeConvention::kEvalrun;
  evaluators::ScoringContext context;
  context.reuse_results = false;
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point t) {
    return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
  };
  const auto run = [&](const datasets::CodeProblem& p) {
    return evaluators::run_answer(
        p, evaluators::read_answer(p, false, p.canonical_solution, kConvention), kConvention,
        context);
  };
  run(problems.front());  // prepares the toolchain
  std::vector<evaluators::ProgramResult> results(problems.size());
  std::vector<double> wall(problems.size()), cpu;
  const Clock::time_point begin = Clock::now();
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w)
    threads.emplace_back([&] {
      for (size_t i = 0; (i = next++) < problems.size();) {
        const Clock::time_point start = Clock::now();
        results[i] = run(problems[i]);
        wall[i] = ms_since(start);
      }
    });
  for (std::thread& t : threads) t.join();
  check.total = static_cast<int>(problems.size());
  check.per_s = static_cast<double>(problems.size()) / (ms_since(begin) * 1e-3);
  for (size_t i = 0; i < problems.size(); ++i) {
    if (results[i].cpu_ms) cpu.push_back(*results[i].cpu_ms);
    if (results[i].status == "passed")
      ++check.passed;
    else
      check.failures.push_back(
          fmt::format("{} {} ({})", problems[i].task, results[i].status, results[i].detail));
  }
  check.median_ms = quantile(wall, 0.5);
  check.p95_ms = quantile(wall, 0.95);
  check.cpu_ms = quantile(cpu, 0.5);
}

}  // namespace

std::vector<CodeCheck> check_sandbox_and_toolchains() {
  std::vector<CodeCheck> checks;
  try {
    const auto sandbox = evaluators::shared_sandbox({});
    checks.push_back({"sandbox", sandbox->name(), ""});
    checks.push_back(check_containment(*sandbox));
  } catch (const base::Error& error) {
    checks.push_back({"sandbox", error.message(), error.hint(), false});
  }
  for (const auto& [name, language] : evaluators::languages().entries())
    checks.push_back(check_toolchain(language));
  return checks;
}

std::vector<SolutionCheck> check_solutions(const std::string& data_root, int workers,
                                           const std::function<bool(int64_t)>& takes) {
  evaluators::shared_sandbox({});  // without one there is nothing to tell
  std::vector<SolutionCheck> checks;
  for (const auto& [name, language] : evaluators::languages().entries()) {
    SolutionCheck check;
    check.language = language.title;
    const evaluators::Toolchain& toolchain = evaluators::toolchain_of(language);
    check.version = toolchain.version;
    for (const std::string& package : toolchain.packages)
      check.missing += (check.missing.empty() ? "apt-get install " : " ") + package;
    if (check.missing.empty()) {
      std::vector<datasets::CodeProblem> problems = problems_of(name, data_root, check.problems);
      int64_t index = 0;
      std::erase_if(problems, [&](const auto&) { return !takes(index++); });
      if (!problems.empty()) run_solutions(problems, workers, check);
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

void print_solutions(const std::vector<SolutionCheck>& checks, int workers, bool json) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  std::string failures;
  for (const SolutionCheck& c : checks) {
    array.push_back({{"language", c.language},
                     {"version", c.version},
                     {"problems", c.problems},
                     {"missing", c.missing},
                     {"passed", c.passed},
                     {"total", c.total},
                     {"median_ms", c.median_ms},
                     {"p95_ms", c.p95_ms},
                     {"cpu_ms", c.cpu_ms},
                     {"programs_per_s", c.per_s},
                     {"failures", c.failures}});
    if (c.missing.empty())
      rows.push_back({c.language, c.version, c.problems, fmt::format("{} / {}", c.passed, c.total),
                      fmt::format("{:.0f}", c.median_ms), fmt::format("{:.0f}", c.p95_ms),
                      fmt::format("{:.0f}", c.cpu_ms), fmt::format("{:.1f}", c.per_s)});
    else
      rows.push_back({c.language, c.version, c.missing, "not run", "", "", "", ""});
    for (const std::string& failure : c.failures) failures += "\n" + failure;
  }
  if (json) {
    print_json_document({{"workers", workers}, {"languages", array}});
    return;
  }
  print_line(aligned_table(
      {"language", "toolchain", "problems", "passed", "median ms", "p95 ms", "CPU ms", "per s"},
      rows));
  print_line(
      fmt::format("\nofficial solutions, {} workers, compiling and sandbox included", workers));
  if (!failures.empty()) print_line("not passed:" + failures);
}

}  // namespace evalrun::cli
