// How the sequences of batches fared, beside those that were decoded alone.
#pragma once
#include <cstdint>
#include <functional>
#include <map>

#include "results/store.h"

namespace evalrun::results {

// A turn of a finished generation without a planted fault (view v_batch_turn).
struct BatchTurnRow {
  int64_t arm_id = 0, prompt_id = 0;
  int64_t turn = 0;  // of the conversation, from 0
  int64_t n_tokens = 0;
  int64_t first_token_ns = 0;  // from its admission
  int64_t wall_ns = 0;         // from there to its last token
};
// By generation and turn.
void for_batch_turns(const ResultStore& store, int64_t run_id,
                     const std::function<void(const BatchTurnRow&)>& use);

// A step, as one of its sequences took part in it. Decoded alone it is a step of one member, which
// waits for nobody: the gap of a turn's first one has the drafter's prefill in it.
struct BatchMemberRow {
  int64_t arm_id = 0, prompt_id = 0;
  int64_t call = 0, number = 0;  // members of one step share both; call 0: alone
  int64_t members = 1, rows = 1, emitted = 0, ns = 0;  // of the step, of all members
  int64_t own_emitted = 0, gap_ns = 0;                 // of the sequence
  int64_t own_drafted = 0;
  int64_t context = 0;  // of its tokens, whose keys and values were there before the step
};
// Of the same generations, in their order and that of the steps.
void for_batch_members(const ResultStore& store, int64_t run_id,
                       const std::function<void(const BatchMemberRow&)>& use);

// All steps of an arm's batches together, each once. Fillers are in it, and planted faults.
struct BatchStepSums {
  int64_t steps = 0;
  int64_t members = 0, rows = 0, emitted = 0, ns = 0;  // of all members
};
// By arm; those of batches above 1 whose generations are finished.
std::map<int64_t, BatchStepSums> batch_step_sums(const ResultStore& store, int64_t run_id);

}  // namespace evalrun::results
