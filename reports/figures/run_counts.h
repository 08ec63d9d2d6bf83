// What the views v_acceptance_histogram and v_node_acceptance say about one run, added up while its
// rows are read once, in the order they lie in the file: a sum in SQL would sort them first, which
// takes longer than all the reading.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "reports/data/run_data.h"
#include "results/store.h"

namespace evalrun::reports {

// Steps in which `depth` was the longest drafted path and `accepted` tokens were accepted; `cut`:
// the stop rule ended the step, so what comes after is unknown.
struct StepCount {
  int64_t depth = 0, accepted = 0, steps = 0;
  bool cut = false;
};

// Draft nodes at one place of the tree, over all finished generations (view v_node_acceptance).
struct NodeAcceptance {
  int64_t depth = 0, rank = 0;  // as results::NodeCount
  int64_t tested = 0, accepted = 0;
};

struct RunCounts {
  std::map<ArmTask, std::vector<StepCount>> steps;       // of arms that draft
  std::map<ArmTask, std::vector<NodeAcceptance>> nodes;  // by depth, then rank
};

RunCounts count_run(const results::ResultStore& store, const RunData& data);

}  // namespace evalrun::reports
