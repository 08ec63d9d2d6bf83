// Greedy losslessness: the answers of a method against plain decoding of the same model, token by
// token. Where they differ: how near the two tokens were to a tie, and along plain decoding's text
// (methods/replay.h) at how many places the method would have gone on otherwise.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/session.h"
#include "methods/method.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// Spacing of the number format at the larger of two logits that makes them a tie: one spacing is
// 0.125 for bfloat16 at logits of 16 to 32, so a different order of additions can swap such tokens.
inline constexpr double kNearTieSpacings = 2;

struct GreedyDifference {
  std::string task, prompt;
  int index = 0;                      // of the answer's tokens
  int32_t expected = -1, found = -1;  // -1: one answer ended here and the other went on
  double gap = 0;      // logit of `expected` - logit of `found`, by plain decoding of that text
  double spacing = 0;  // format_spacing() at the larger of the two
  bool near_tie() const { return gap <= kNearTieSpacings * spacing; }
};

struct GreedyProof {
  int prompts = 0, identical = 0, near_ties = 0, divergent = 0;  // by the first difference
  int64_t tokens = 0;                                            // compared
  std::vector<GreedyDifference> first;                           // of each prompt that differs
  // Along plain decoding's text, for the prompts that differ.
  int64_t replayed = 0;                    // places asked
  std::vector<GreedyDifference> replay{};  // at every place that differs
};

// First turns of `prompts`, decoded greedily with and without the method, in one session of its
// model. `plain` holds the answers of plain decoding in the order of the prompts, or is empty: then
// they are made and left there for the next arm of the same model.
struct PlainAnswers {
  std::vector<std::vector<int32_t>> prompt, answer;  // token ids
};
GreedyProof prove_greedy(methods::DecodingMethod& method, engine::Session& session,
                         std::span<const PlannedPrompt> prompts, const Conversation& conversation,
                         PlainAnswers& plain, base::Clock& clock,
                         const std::function<void()>& tick);

// Greedy or sampled answers of plain decoding, as above.
PlainAnswers decode_plainly(engine::Session& session, std::span<const PlannedPrompt> prompts,
                            const Conversation& conversation,
                            const engine::SamplingParams& sampling, uint64_t seed,
                            base::Clock& clock, const std::function<void()>& tick);

}  // namespace evalrun::runners
