// The prompts of a plan: read, cut, rendered, and measured against the context.
#pragma once
#include <map>
#include <set>
#include <string>

#include "runners/plan/plan.h"

namespace evalrun::runners {

struct PlannedData {
  std::map<std::string, int> max_new;  // by task
  std::set<std::string> evaluators;    // that score any of the data sets
};

// Adds the prompts of the suite's tasks to `plan`, with what was skipped, where they come from, and
// "data.TASK" in the environment of its run. Throws as make_plan().
PlannedData plan_prompts(const PlanRequest& request, RunPlan& plan);

}  // namespace evalrun::runners
