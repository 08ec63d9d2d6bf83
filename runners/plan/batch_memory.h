// Whether this machine can hold the caches of a plan's batches.
#pragma once
#include "runners/plan/plan.h"

namespace evalrun::runners {

// Refuses a plan (usage_error, with the largest batch that fits) whose models' keys and values, of
// as many sequences as its largest batch has, need more than `available_bytes`. `session`: that of
// the plan (planned_session()). Not of batches of one, and not on a GPU: there the session itself
// refuses.
void check_batch_memory(const RunPlan& plan, const engine::SessionOptions& session,
                        double available_bytes);

}  // namespace evalrun::runners
