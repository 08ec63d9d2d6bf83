// The decision of `evalrun check`: is the new run as correct and as fast as the stored baseline?
// Correctness first, by equality, without statistics; then speed, with a three-way verdict
// (docs/measurement.md). Measuring, extending and confirming are the command's business.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "reports/data/run_data.h"
#include "reports/gate/compare.h"
#include "results/store.h"

namespace evalrun::reports {

struct GateOptions {
  // "ok" means a loss beyond this is excluded; "regression" means a loss beyond it, and beyond
  // twice the A/A arm's deviation, is proven.
  double max_regression = 0.03;
  double alpha = 0.05;  // one-sided
  int looks = 1;        // planned looks at growing data: each is tested at alpha / looks
  // Scores may not be worse than the baseline's by more than this share of its mean.
  double max_quality_loss = 0.05;
  Faults faults = Faults::kLeaveOut;  // of the new run; kInclude for the self-test
};

// Worst first: the exit code is that of the worst verdict. A new run that is wrong in itself is
// wrong whatever the baseline is; nothing is compared with an incompatible one.
enum class Outcome { kCorrectness, kIncompatible, kRegression, kInconclusive, kImprovement, kOk };
const char* to_string(Outcome o);

struct Verdict {
  // "failures", "accounting", "repeats", "lossless": the new run by itself;
  // "comparable", "complete", "tokens", "counters", "quality", "speed": against the baseline.
  std::string metric;
  std::string method;  // arm label, "" for the whole run
  Outcome outcome = Outcome::kOk;
  std::string reason;  // one line
  // Speed only: change of the per-prompt speedup as a factor - 1 (-0.1 = 10 % slower) with its
  // one-sided limits, the margin used and the one-sided p-value of "slower than the margin" (Holm).
  std::optional<double> effect, lo, hi, margin, p_value;
  std::vector<Cause> causes;  // speed only: which side moved; empty where neither did
  int64_t n = 0;              // what was looked at: prompts, generations
};

struct GateResult {
  base::ExitCode code = base::ExitCode::kOk;
  std::vector<Verdict> verdicts;
  double noise_floor = 0;  // |mean log ratio| of the A/A arms, the larger of the two runs
  double margin = 0;       // a proven loss beyond this is a regression
  std::string summary;     // one line for stdout
  // A verdict on speed is open that more repeats may close.
  bool more_repeats_help() const;
  RunInfo base, current;
};

// Runs of one build, each a process of its own.
struct Sessions {
  const results::ResultStore& store;
  std::vector<int64_t> runs;  // not empty
};
// Every session of `current` is held against the first of `base`; the speed is judged over all, by
// the spread between sessions where a side has several (sessions.h). Throws data_error where a
// side's sessions did not measure the same.
GateResult evaluate_gate(const Sessions& base, const Sessions& current,
                         const GateOptions& options = {});
GateResult evaluate_gate(const results::ResultStore& base_store, int64_t base_run,
                         const results::ResultStore& new_store, int64_t new_run,
                         const GateOptions& options = {});

std::string to_json(const GateResult& r);  // {"exit_code", "outcome", "summary", "margin", ...}
std::string to_text(const GateResult& r);  // one line per verdict, worst first

}  // namespace evalrun::reports
