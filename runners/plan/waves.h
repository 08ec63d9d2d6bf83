// Which prompts are decoded together. Prompts of a data set come in waves (Batches::wave_size());
// within a wave an arm of batch B decodes them
//   B = 1: one after the other;
//   static: in groups of B, in their order, a decode_batch() call for each;
//   continuous: in one decode_batch() call, as slots become free.
// So the same prompts are in the same slots for every method of a size and mode; of a continuous
// batch this holds for the first B of a wave.
//
// A batch is always full. Where a wave has fewer prompts left than there are slots, FILLERS take
// the free ones: prompts of the same data set from its beginning, decoded and not stored.
// Throughput is that of the whole batch then, whatever the number of prompts.
#pragma once
#include <vector>

#include "runners/plan/plan.h"

namespace evalrun::runners {

// Successive prompts of one data set, `size` of them but for the last wave of a data set. Indices
// of `prompts`.
std::vector<std::vector<int>> make_waves(const std::vector<PlannedPrompt>& prompts, int size);

// Refuses data sets with fewer prompts than the largest batch (usage_error): a batch never has a
// prompt twice from the beginning.
void check_batch_prompts(const std::vector<PlannedPrompt>& prompts, const Batches& batches);

// The wave that a visit is of, an index of RunPlan::waves.
int wave_of(const RunPlan& plan, const Visit& visit);

// Prompts of a wave that an arm has before the next one does, by arm: a call's. Continuous batches
// are fed until the wave is over, so they have all of it.
std::vector<int> prompts_of_turns(const RunPlan& plan);

// One decode_batch() call.
struct BatchGroup {
  // Indices of RunPlan::prompts. Static: prompts[s] is slot s's. Continuous: in the order in which
  // slots take them, slot s the s-th first.
  std::vector<int> prompts;
  int n_stored = 0;  // so many of them, the first ones, are stored; the others are fillers

  bool operator==(const BatchGroup&) const = default;
};

// The calls that an arm decodes a wave by. Every group has B prompts at least, and a static one has
// B. Of an arm of batch 1: a group per prompt, without fillers.
std::vector<BatchGroup> batch_groups(const RunPlan& plan, int arm, int wave);

// The k-th filler beside a wave, k from 0: over and over through the prompts of its data set. Those
// of batch_groups() are the first ones; a continuous batch goes on with k = prompts.size() -
// n_stored where slots become free and every prompt of the wave is under way.
int filler_prompt(const RunPlan& plan, int wave, int k);

}  // namespace evalrun::runners
