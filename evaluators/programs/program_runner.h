// From an answer to a verdict: assemble, compile and run in the sandbox, judge.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "evaluators/evaluator.h"
#include "evaluators/programs/completion.h"
#include "evaluators/programs/language.h"

namespace evalrun::evaluators {

// Time limits of a convention. together: compiling counts, run_s is for both.
struct TimeLimits {
  double compile_s = 30, run_s = 5;
  bool together = false;
};
TimeLimits time_limits(const datasets::CodeProblem& problem, CodeConvention convention);

struct ProgramResult {
  std::string status, detail;  // see program_outcome.h
  bool suspicious = false;
  std::string toolchain, sandbox;
  double wall_ms = 0, compile_ms = 0;
  std::optional<double> cpu_ms;  // of the run; compiling included where one process does both
  int64_t peak_rss = 0;
  int exit_code = 0, signal = 0;
  TimeLimits limits;
  int64_t memory_limit = 0;
  std::string output;  // first 2 KB of standard error, then output
  bool cached = false;

  // Judged, well or badly: has a value.
  bool has_value() const { return status != "sandbox_error" && status != "toolchain_missing"; }
};

// Never throws for the answer's bytes. Thread-safe.
ProgramResult run_answer(const datasets::CodeProblem& problem, const Answer& answer,
                         CodeConvention convention, const ScoringContext& context);

// The process's sandbox for these options, probed once. Throws as Sandbox::open().
std::shared_ptr<Sandbox> shared_sandbox(const ScoringContext& context);

// Versions and missing packages, looked up once per process.
const Toolchain& toolchain_of(const Language& language);

}  // namespace evalrun::evaluators
