// The one decode loop: prefill, first token, steps, stop rule, truncation, counting - the same for
// every method, AR included.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "methods/method.h"
#include "results/records.h"

namespace evalrun::methods {

struct TurnRequest {
  std::span<const int32_t> prompt;  // ids of the whole conversation so far, generation prompt included
  // Tokens at the front of `prompt` that were the *prompt* of the previous turn on this session and
  // may be kept in the cache (0 for a first turn). Answers are prefilled again in a second turn, so
  // that prefill is the same calls for every method.
  int keep = 0;
  int max_new = 128;
  std::span<const int32_t> stop_ids;  // empty = run to max_new (--ignore-eos)
  engine::SamplingParams sampling;
  uint64_t seed = 0;
};

// Runs one turn. Accounting (docs/measurement.md): the first token comes from the prefill's last row,
// counts in `tokens` and in no step; sum over steps of emitted = tokens - 1. A stop token counts once
// and ends the generation; what a step produced behind it, or behind max_new, is cut and not counted:
// the last step's `emitted` and `accepted` are what was kept of them.
// Decode time runs from the first token's availability to the end of the last step.
// Throws usage_error when prompt + max_new + the method's rows do not fit the session.
results::TurnRecord decode_turn(DecodingMethod& method, engine::Session& target,
                                const TurnRequest& request, base::Clock& clock);

}  // namespace evalrun::methods
