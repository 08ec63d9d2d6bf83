// What `evalrun doctor` says about running generated code: sandbox, toolchains, official solutions.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace evalrun::cli {

// Result of one look. ok = false without problem: something is not there, which only matters to who
// wants to score code.
struct CodeCheck {
  std::string name, value, hint;
  bool ok = true, problem = false;
};

// The sandbox, what a few hostile programs can do in it (2 s), and the toolchains of all languages.
// Prepares and writes nothing.
std::vector<CodeCheck> check_sandbox_and_toolchains();

// Official solutions of one language, run as answers are.
struct SolutionCheck {
  std::string language, version, problems;  // problems: where they come from
  std::string missing;                      // why nothing was run, else ""
  int passed = 0, total = 0;
  double median_ms = 0, p95_ms = 0;   // of a whole program, sandbox and compiling included
  double cpu_ms = 0;                  // median, compiling included
  double per_s = 0;                   // programs per second, all workers
  std::vector<std::string> failures;  // "Rust/32 no_tests"
};

// With HumanEval-X under `data_root` all of its problems, otherwise our own one per language.
// Prepares toolchains where needed (a minute, once).
// `takes`: of the problems of a language, by index from 0, those to run.
std::vector<SolutionCheck> check_solutions(const std::string& data_root, int workers,
                                           const std::function<bool(int64_t)>& takes);

// As a table, or as one JSON document.
void print_solutions(const std::vector<SolutionCheck>& checks, int workers, bool json);

}  // namespace evalrun::cli
