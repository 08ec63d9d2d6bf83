// The gate's check of speed: has the speedup of an arm, or the speed of a server against its
// yardstick, fallen beyond the margin?
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"

namespace evalrun::reports {

// A side is one session or several; sessions.h says how they are pooled.
struct SpeedChecks {
  std::vector<GateCheck> checks;  // one per arm of the baseline that is judged (yardsticks_of())
  double noise_floor = 0;         // these two as GateResult
  double margin = 0;
};
SpeedChecks speed_checks(const std::vector<RunData>& bases, const std::vector<RunData>& news,
                         const GateOptions& options);

}  // namespace evalrun::reports
