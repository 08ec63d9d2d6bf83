// Who measured a run, and which parts of its plan.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
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

// Runs that measured the plan of this key, oldest first.
std::vector<int64_t> runs_of_plan(const ResultStore& store, const std::string& plan_key);
// Keys of prompts that have all generations of the plan.
std::set<std::string> whole_prompts(const ResultStore& store, int64_t run_id,
                                    const PlanRecord& plan);
// Number and key of every prompt that has a generation.
std::vector<std::pair<int64_t, std::string>> measured_prompts(const ResultStore& store,
                                                              int64_t run_id);
void drop_generations(ResultStore& store, int64_t run_id, int64_t prompt_id);

// What a file holds.
struct StoreContent {
  int64_t generations = 0;
  std::set<std::string> runs = {};  // by key
};
StoreContent content_of(const ResultStore& store);

}  // namespace evalrun::results
