// The gate's checks of speed where two builds took turns in lock step (lock_step.h).
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"
#include "reports/gate/gate_speed.h"
#include "results/generation_queries.h"

namespace evalrun::reports {

// A run and the steps of its generations, those with a planted fault included where the gate's
// options include them.
struct LockStepRun {
  RunData data;
  std::vector<results::StepTimesRow> generations;
};

// Session i of `bases` and of `news` took turns. "speed" of every arm that drafts, as
// speed_checks() has it, and "tok_s" of every arm but A/A: the machine was the same for both, so
// that a build that is slower as a whole shows. All of them are one family (Holm).
//
// A session's change of an arm is paired_gain() over the steps of all its answers. An answer to
// which the builds took other steps is one pair, of its times for as many tokens. Where this build
// has significantly more long steps than the other, all count in full instead, and the reason says
// so.
SpeedChecks lock_step_checks(const std::vector<LockStepRun>& bases,
                             const std::vector<LockStepRun>& news, const GateOptions& options);

}  // namespace evalrun::reports
