// What servers said of their answers (table endpoint_turn), by arm.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::results {

// Sums over the turns of finished generations without a planted fault.
struct EndpointTotals {
  int64_t turns = 0;
  int64_t with_steps = 0;  // turns whose steps of the target the server lets us count
  int64_t retries = 0;     // requests sent again
  int64_t with_cached = 0, cached_tokens = 0;  // turns that tell what their prompt's cache gave
};
// Of arms that are servers; none in files before version 12.
std::map<int64_t, EndpointTotals> endpoint_totals(const ResultStore& store, int64_t run_id);

// The first finished answer of a server to each prompt and sample, without a planted fault, by
// prompt key and sample.
struct CountedAnswer {
  std::string prompt_key, tokens_hash;
  int64_t prompt_id = 0, sample = 0;
  // Over its turns: tokens after the first, steps of the target, and the server's own counts.
  int64_t tokens = 0, steps = 0, drafted = 0, accepted = 0;
  bool counted = false;  // the server counted the steps of every turn
};
std::vector<CountedAnswer> endpoint_answers(const ResultStore& store, int64_t arm_id);

// Answers to the same prompt and sample, one arm's in its first repeat and another's in a repeat.
struct AskedTwice {
  int64_t answers = 0, differing = 0;
};
AskedTwice asked_twice(const ResultStore& store, int64_t arm_id, int64_t other_arm_id,
                       int64_t other_repeat);

}  // namespace evalrun::results
