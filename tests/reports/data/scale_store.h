// Result files as large as years of measuring make them, written by SQL in minutes: every row of
// every table a run has, counters that add up (v_accounting), times and acceptance drawn by a hash
// of the row, so that equal shapes give equal files. Tokens and texts are filler.
#pragma once
#include <cstdint>

#include "results/store.h"

namespace evalrun::tests {

// 100 runs of these are 10^6 generations and 2 x 10^7 steps.
struct ScaleShape {
  int runs = 100;
  int arms = 20;      // plain decoding, its A/A twin, methods
  int prompts = 500;  // over five data sets of two categories each
  int steps = 20;     // of every generation
};

// Runs 1, 2, ... of the same prompts and arms; each is labelled "run-<n>".
void fill_at_scale(results::ResultStore& store, const ScaleShape& shape);

// One run, as the machine of this shard has it: generations of its own `shape.prompts`, of a plan
// that has as many for every shard. As the program writes them, the prompts of all the plan are
// there; `own_prompts`: only those of the shard. Every third machine has a processor on which
// drafts gain less. `runs` is not used.
void fill_shard(results::ResultStore& store, const ScaleShape& shape, const results::Shard& shard,
                bool own_prompts = false);

}  // namespace evalrun::tests
