// The steps of an arm as they were stored, answer by answer: what `evalrun predict` replays.
#pragma once
#include <cstdint>
#include <vector>

#include "results/store.h"

namespace evalrun::reports {

struct TracedTurn {
  std::vector<results::StepRecord> steps = {};
  std::vector<results::NodeCount> nodes = {};  // by depth, then rank; empty in old files
  int64_t decode_ns = 0;
};

// One (prompt, sample): its repeat of median decode time. An even number of repeats has two of
// them, each of weight 1/2, as in the view v_sample.
struct TracedAnswer {
  int64_t prompt_id = 0;
  int sample = 0;
  double weight = 1;
  std::vector<TracedTurn> turns = {};
};

// Finished generations without a planted fault, by prompt and sample.
std::vector<TracedAnswer> load_traces(const results::ResultStore& store, int64_t run_id,
                                      int64_t arm_id);

}  // namespace evalrun::reports
