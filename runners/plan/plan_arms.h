// The arms of a plan: methods that can be built, their engine mode, their keys.
#pragma once
#include <map>
#include <string>

#include "runners/plan/plan.h"

namespace evalrun::runners {

// Adds an arm per method and server of the suite, the A/A arm, and plain decoding of tuned targets.
// plan.capacity is set already; `max_new`: by task. Throws as make_plan(). Methods of batches are
// built for one slot only, because memory may not hold more.
void plan_arms(const PlanRequest& request, const std::map<std::string, int>& max_new,
               RunPlan& plan);
// Then, once the memory is known to suffice: builds methods of batches as the run will, and notes
// the bytes of their parameters.
void build_batches(RunPlan& plan);

}  // namespace evalrun::runners
