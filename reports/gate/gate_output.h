// The gate's checks of output, by equality, without statistics: the new run by itself, and its
// tokens and steps against the baseline's.
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"
#include "results/store.h"

namespace evalrun::reports {

// "failures", "accounting", "repeats" and "lossless" of a run, whatever the baseline is.
std::vector<GateCheck> output_checks(const results::ResultStore& store, const RunData& run,
                                     Faults faults);

// "tokens" and "counters": the same build, model and prompts must give the same tokens and, for the
// same tokens, the same steps (so tau and the acceptance histogram are equal to the last digit).
// Draws that a method does not promise are comparable when the same program drew them only. Both
// runs must have the same arms.
std::vector<GateCheck> equality_checks(const RunData& base, const RunData& current);

}  // namespace evalrun::reports
