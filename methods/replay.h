// Reference replay: a method is made to follow a given text while its drafting, its forward passes
// and its verification really run. Where the target as the method asked it (in a forward of many
// rows) would have gone on otherwise, that is noted and the reference is followed. Texts are then
// equal by force, and a fault shows as a count of positions instead of one early divergence.
//
// Greedy only: a rejection rule decides by comparing draws, and which draft it would have refused
// on the way to a given token is not a question it can answer.
#pragma once
#include <cstdint>
#include <vector>

#include "methods/speculative_method.h"

namespace evalrun::methods {

// A place of the answer (0 = its first token, which comes from the prefill) where the method would
// have emitted `found` and not the reference's token.
struct Disagreement {
  int index = 0;
  int32_t found = -1;
};

struct ReplayTrace {
  int64_t asked = 0;  // places at which the method had a say
  std::vector<Disagreement> disagreements;
};

// While an object lives, every generation of `method` follows `reference`: the tokens of an answer,
// the prefill's among them; after its end the method goes its own way. Both must outlive the
// object. usage_error for a method that lacks the common verifier, InternalError in a generation
// that is not greedy.
class Replay {
 public:
  Replay(DecodingMethod& method, const std::vector<int32_t>& reference);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  const ReplayTrace& trace() const { return trace_; }  // over all generations so far

 private:
  SpeculativeMethod& method_;
  SpeculativeMethod::VerdictHook before_;  // a planted fault, which is to be seen
  ReplayTrace trace_;
};

// While an object lives, every generation of `method` begins with `start`, the prefill's token
// first, and a step ends where `start` does: from there on the method is free, with what it has
// learnt and drafted on the way. Greedy and sampled: what the method draws later depends on no
// verdict that was overruled. A planted fault acts on the free steps only. Both must outlive the
// object. usage_error for a method that lacks the common verifier.
class LedStart {
 public:
  LedStart(DecodingMethod& method, const std::vector<int32_t>& start);
  ~LedStart();
  LedStart(const LedStart&) = delete;
  LedStart& operator=(const LedStart&) = delete;

 private:
  SpeculativeMethod& method_;
  SpeculativeMethod::VerdictHook before_;
};

}  // namespace evalrun::methods
