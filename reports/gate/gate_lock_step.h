// The gate's checks of speed where two builds took turns in lock step (lock_step.h).
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"
#include "reports/gate/gate_speed.h"

namespace evalrun::reports {

// Session i of `bases` and of `news` took turns. "speed" of every arm that drafts, as
// speed_checks() has it, and "tok_s" of every arm but A/A: the machine was the same for both, so
// that a build that is slower as a whole shows. All of them are one family (Holm).
SpeedChecks lock_step_checks(const std::vector<RunData>& bases, const std::vector<RunData>& news,
                             const GateOptions& options);

}  // namespace evalrun::reports
