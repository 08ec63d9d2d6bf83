// The gate's check of quality: non-inferiority of every arm's scores, paired by prompt.
#pragma once
#include <string>
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"
#include "results/store.h"

namespace evalrun::reports {

// One per arm and evaluator: the mean over prompts of new minus old score, against a loss of
// options.max_quality_loss of the old mean, declared before the run; one-sided at options.alpha,
// Holm over arms and evaluators. Prompts of one group are one unit, of fixed data sets and
// categories (Scope::kSameKind). Both runs must have the same arms.
std::vector<GateCheck> quality_checks(const results::ResultStore& base_store,
                                      const RunData& was_run, const results::ResultStore& store,
                                      const RunData& current, const GateOptions& options);

}  // namespace evalrun::reports
