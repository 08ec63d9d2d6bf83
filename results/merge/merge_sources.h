// What is to be merged: runs of one plan, in an order of their own. Internal to results/merge/.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "results/machines.h"
#include "results/merge/merge_outcome.h"
#include "results/queries.h"

namespace evalrun::results {

struct MergeSource {
  std::string path;
  RunRow run = {};
  PlanRecord plan = {};
  std::vector<Shard> shards = {};
  bool only_run = false;   // of its file
  bool is_target = false;  // what the target held
  int64_t generations = 0;
};

// Every run once, in an order that does not depend on that of the inputs. `target`: file to merge
// into, whose run is the first input where there is one. Throws as merge_runs().
std::vector<MergeSource> merge_sources(const std::string& target,
                                       const std::vector<MergeInput>& inputs);

}  // namespace evalrun::results
