// Losslessness by equality: the answers of a method against plain decoding of the same model, token
// by token, greedy or sampled with the same seeds (docs/methods.md says which methods promise the
// second). Where greedy answers differ: how near the two tokens were to a tie, and along plain
// decoding's text (methods/replay.h) at how many places the method would have gone on otherwise.
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

struct TokenDifference {
  std::string task, prompt;
  int index = 0;                      // of the answer's tokens
  int32_t expected = -1, found = -1;  // -1: one answer ended here and the other went on
  // Greedy only. Logit of `expected` - logit of `found`, by plain decoding of that text; infinite
  // without two tokens, or when sampled.
  double gap = 0;
  double spacing = 0;  // format_spacing() at the larger of the two
  bool near_tie() const { return gap <= kNearTieSpacings * spacing; }
};

struct TokenIdentity {
  int answers = 0, identical = 0, near_ties = 0, divergent = 0;  // by the first difference
  int64_t tokens = 0;                                            // compared
  std::vector<TokenDifference> first;                            // of each answer that differs
  // Along plain decoding's text, for the greedy answers that differ.
  int64_t replayed = 0;                   // places asked
  std::vector<TokenDifference> replay{};  // at every place that differs
};

// How answers are decoded. Answer i has a seed of its own, made of `seed` and i.
struct AnswerOptions {
  engine::SamplingParams sampling;
  uint64_t seed = 0;
  int per_prompt = 1;
};

// Answers of plain decoding, those of a prompt one after the other.
struct PlainAnswers {
  std::vector<std::vector<int32_t>> prompt;  // [prompt] token ids
  std::vector<std::vector<int32_t>> answer;  // [prompt * per_prompt + i]
};
PlainAnswers decode_plainly(engine::Session& session, std::span<const PlannedPrompt> prompts,
                            const Conversation& conversation, const AnswerOptions& options,
                            base::Clock& clock, const std::function<void()>& tick);
// Answer `index` of `method`.
std::vector<int32_t> decode_answer(methods::DecodingMethod& method, engine::Session& session,
                                   std::span<const PlannedPrompt> prompts,
                                   const PlainAnswers& plain, size_t index,
                                   const Conversation& conversation, const AnswerOptions& options,
                                   base::Clock& clock);

// First turns of `prompts`, decoded with and without the method, in one session of its model.
// `plain` holds the answers of plain decoding, or is empty: then they are made and left there for
// the next arm of the same model.
TokenIdentity compare_tokens(methods::DecodingMethod& method, engine::Session& session,
                             std::span<const PlannedPrompt> prompts,
                             const Conversation& conversation, const AnswerOptions& options,
                             PlainAnswers& plain, base::Clock& clock,
                             const std::function<void()>& tick);

}  // namespace evalrun::runners
