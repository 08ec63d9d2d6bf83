// What the gate is asked for, and what each of its checks says.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/data/run_data.h"
#include "reports/gate/lock_step.h"

namespace evalrun::reports {

struct GateOptions {
  // "ok" means a loss beyond this is excluded; "regression" means a loss beyond it, and beyond
  // twice the A/A arm's deviation, is proven.
  double max_regression = 0.03;
  double alpha = 0.05;  // one-sided
  // Planned looks at growing data, and which of them this is (0 = the first). The first one gets
  // half of alpha, the others share the rest: most verdicts should need one look, and by Bonferroni
  // all looks together err at most as often as alpha says.
  int looks = 1, look = 0;
  double level() const;
  // Scores may not be worse than the baseline's by more than this share of its mean.
  double max_quality_loss = 0.05;
  Faults faults = Faults::kLeaveOut;  // of the new run; kInclude for the self-test
  bool lock_step = false;             // session i of both builds took turns: gate_lock_step.h
  // What the time of servers is judged by (gate_yardstick.h): an arm's label, kNoYardstick, or ""
  // for the usual one.
  std::string yardstick = {};
};
inline constexpr const char* kNoYardstick = "none";

// Worst first: the exit code is that of the worst verdict. A new run that is wrong in itself is
// wrong whatever the baseline is; nothing is compared with an incompatible one.
enum class Outcome { kCorrectness, kIncompatible, kRegression, kInconclusive, kImprovement, kOk };
const char* to_string(Outcome o);

struct GateCheck {
  // "failures", "accounting", "repeats", "lossless": the new run by itself;
  // "comparable", "complete", "tokens", "counters", "quality", "speed": against the baseline;
  // "answers", "tau": the same of servers; "tok_s": in lock step.
  std::string metric;
  std::string method;  // arm label, "" for the whole run
  Outcome outcome = Outcome::kOk;
  std::string reason;  // one line
  // "speed" and "tok_s" only: change of the speedup, or of tokens per second, as a factor - 1 (-0.1
  // = 10 % slower) with its one-sided limits, the margin used and the one-sided p-value of "slower
  // than the margin" (Holm; gate_lock_step.cpp says of what where long steps decide). "quality" has
  // a p-value where scores differ, of a loss beyond what passes.
  std::optional<double> effect, lo, hi, margin, p_value;
  // "speed" against a stored baseline: the smallest loss that such figures prove to lie beyond the
  // margin in four of five checks, by the spread that they have.
  std::optional<double> detectable;
  std::optional<LongSteps> long_steps;  // in lock step: of this arm, over all sessions
  std::vector<Cause> causes;            // speed only: which side moved; empty where neither did
  int64_t n = 0;                        // what was looked at: prompts, generations
};

// A check without figures.
GateCheck gate_check(std::string metric, std::string method, Outcome outcome, std::string reason,
                     int64_t n);

}  // namespace evalrun::reports
