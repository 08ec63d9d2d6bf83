// The one decode loop: prefill, first token, steps, stop rule, truncation, counting - the same for
// every method, AR included.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "methods/method.h"
#include "methods/stop_text.h"
#include "results/records.h"

namespace evalrun::methods {

struct TurnRequest {
  std::span<const int32_t>
      prompt;  // ids of the whole conversation so far, generation prompt included
  // Tokens at the front of `prompt` that were the *prompt* of the previous turn on this session and
  // may be kept in the cache (0 for a first turn). Answers are prefilled again in a second turn, so
  // that prefill is the same calls for every method.
  int keep = 0;
  int max_new = 128;
  std::span<const int32_t> stop_ids;  // empty = run to max_new (--ignore-eos)
  StopText* stop_text = nullptr;      // watched besides; null = none
  engine::SamplingParams sampling;
  uint64_t seed = 0;
  // Called before every step, where set. The clock must stand still meanwhile.
  std::function<void()> before_step = {};
};

// Runs one turn: rewinds the session to `keep`, prefills, decodes. Afterwards the session holds the
// prompt and what the steps committed, which may go past the last token returned.
//
// Accounting (docs/measurement.md): the first token comes from the prefill's last row, counts in
// `tokens` and in no step; sum over steps of emitted = tokens - 1 (checked). A stop token counts
// once and ends the generation; so does the token that completes a stop text. A stop token takes
// precedence. What a step produced after it, or beyond max_new, is cut and counted nowhere: the
// last step's `emitted` is the number of its tokens kept, and its `accepted` is the number of draft
// tokens among them (equal to `emitted` when the bonus was cut, emitted - 1 otherwise). `emitted`
// is counted here from the tokens; `accepted`, `drafted`, `rows` and `target_forwards` are the
// method's word.
//
// A generation that fills the session ends with kContextFull, at the same token for every method.
// Decode time (decode_ns) runs from the end of `start` to the end of the last step, the loop's own
// work between steps included; `start` is draft_prefill_ns. Throws usage_error when the prompt does
// not fit the session, or sampling parameters make no sense.
results::TurnRecord decode_turn(DecodingMethod& method, engine::Session& target,
                                const TurnRequest& request, base::Clock& clock);

}  // namespace evalrun::methods
