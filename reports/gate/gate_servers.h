// The gate's checks of what servers answered, beside their time. They promise no token, so equality
// is not asked for: a change has to be more than what a server does by itself.
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"
#include "results/store.h"

namespace evalrun::reports {

// Of every server of the baseline, the A/A arm left out, each family at options.alpha (Bonferroni):
//
// "answers": answers other than the baseline's, against answers that differ where the server was
// asked twice within a run (A/A arm, second repeat), both runs together: Fisher's exact test. A
// server that was never asked twice is taken to agree with itself. More changes: wrong output.
//
// "tau": where the server counts its drafts, ln of tokens per step of the target, paired by prompt.
// A proven fall beyond options.max_regression is a regression, and so are counts that are gone;
// alpha is told and not judged.
std::vector<GateCheck> server_checks(const results::ResultStore& base_store, const RunData& base,
                                     const results::ResultStore& store, const RunData& current,
                                     const GateOptions& options);

}  // namespace evalrun::reports
