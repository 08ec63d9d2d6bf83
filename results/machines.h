// Who measured a run, and which parts of its plan.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::results {

// Whether runs have machines, plans and shards: not in files before version 13.
bool has_machines(const ResultStore& store);

struct MachineRow {
  int64_t id = 0;
  MachineRecord record = {};
};
// In the order in which they were added; none in runs from before version 13.
std::vector<MachineRow> machines(const ResultStore& store, int64_t run_id);

std::optional<PlanRecord> find_plan(const ResultStore& store, int64_t run_id);
// Parts of the plan that were to be measured here, in order; none = all of it.
std::vector<Shard> shards(const ResultStore& store, int64_t run_id);

}  // namespace evalrun::results
