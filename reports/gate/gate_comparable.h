// Whether the gate may hold a run against its baseline.
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"

namespace evalrun::reports {

// "comparable": kIncompatible for every difference of machine, arms, settings, engine mode and
// prompts, and where servers have no yardstick; one kOk where there is none. A server is its name,
// its API, its model and its machine, not the port that it listens on.
std::vector<GateCheck> comparable_checks(const RunData& base, const RunData& current,
                                         const GateOptions& options);

// "complete": kInconclusive where cells of the baseline are not measured, else empty.
std::vector<GateCheck> complete_checks(const RunData& base, const RunData& current);

}  // namespace evalrun::reports
