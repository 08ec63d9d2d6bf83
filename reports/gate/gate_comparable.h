// Whether the gate may hold a run against its baseline.
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"

namespace evalrun::reports {

// "comparable": kIncompatible for every difference of machine, arms, settings, engine mode and
// prompts; one kOk where there is none.
std::vector<GateCheck> comparable_checks(const RunData& base, const RunData& current);

// "complete": kInconclusive where cells of the baseline are not measured, else empty.
std::vector<GateCheck> complete_checks(const RunData& base, const RunData& current);

}  // namespace evalrun::reports
