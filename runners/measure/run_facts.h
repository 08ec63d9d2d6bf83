// What a run stores beside its generations: its arms, what they take, and facts about the machine.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "results/store.h"
#include "runners/measure/generation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// The arm's row in the store, new or stored before. In a shard that another machine began, or in
// merged ones, the arm is the same with other kernels and threads.
int64_t arm_row(const RunPlan& plan, const results::ArmRecord& arm, results::ResultStore& store,
                int64_t run_id);
// Raises `bytes` to what the arm takes by now; it must have a session. False: no more than before.
bool raise_bytes(RunningArm& arm, results::ArmRecord& bytes);

using NoteFact = std::function<void(const std::string& name, const std::string& value)>;
// With the run, so that a report can say what a row cost when it was measured.
void note_row_cost(const MeasuredRowCost& cost, const NoteFact& note);
// Of the first arm with a session. What EVALRUN_NUMA=auto chose depends on the memory that was
// free.
void note_weight_placement(const std::vector<RunningArm>& arms, const NoteFact& note);

}  // namespace evalrun::runners
