#include "runners/verify/token_identity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/base/error.h"
#include "methods/decode_loop.h"
#include "methods/registration.h"
#include "methods/replay.h"
#include "runners/measure/plain_logits.h"

namespace evalrun::runners {
namespace {

TokenDifference difference(PlainLogits& logits, const PlannedPrompt& planned, int index,
                           int32_t expected, int32_t found, const std::string& dtype) {
  TokenDifference d{planned.record.task, planned.record.id, index, expected, found};
  const auto [right, wrong] = logits.at(index, expected, found);
  d.gap = right - wrong;
  d.spacing = format_spacing(std::max(std::abs(right), std::abs(wrong)), dtype);
  return d;
}

// One answer is the beginning of the other: no two tokens to compare; or the tokens were drawn.
TokenDifference without_gap(const PlannedPrompt& planned, int index, int32_t expected,
                            int32_t found) {
  TokenDifference d{planned.record.task, planned.record.id, index, expected, found};
  d.gap = std::numeric_limits<double>::infinity();
  return d;
}

}  // namespace

std::vector<int32_t> decode_answer(methods::DecodingMethod& method, engine::Session& session,
                                   std::span<const PlannedPrompt> prompts,
                                   const PlainAnswers& plain, size_t index,
                                   const Conversation& conversation, const AnswerOptions& options,
                                   base::Clock& clock) {
  const size_t prompt = index / static_cast<size_t>(options.per_prompt);
  methods::TurnRequest request;
  request.prompt = plain.prompt[prompt];
  request.max_new = prompts[prompt].max_new;
  request.stop_ids = conversation.stop_ids();
  std::optional<methods::StopText> stop_text = conversation.stop_text(prompts[prompt].prompt);
  request.stop_text = stop_text ? &*stop_text : nullptr;
  request.sampling = options.sampling;
  request.seed = base::combine_seeds({options.seed, index});
  session.reset();
  return methods::decode_turn(method, session, request, clock).tokens;
}

PlainAnswers decode_plainly(engine::Session& session, std::span<const PlannedPrompt> prompts,
                            const Conversation& conversation, const AnswerOptions& options,
                            base::Clock& clock, const std::function<void()>& tick) {
  const auto plain = methods::parse_method("ar").info->build({}, {});
  PlainAnswers answers;
  for (const PlannedPrompt& planned : prompts)
    answers.prompt.push_back(
        conversation.encode(planned.prompt, conversation.render(planned.prompt, {})));
  const size_t n = prompts.size() * static_cast<size_t>(options.per_prompt);
  for (size_t i = 0; i < n; ++i) {
    answers.answer.push_back(
        decode_answer(*plain, session, prompts, answers, i, conversation, options, clock));
    tick();
  }
  return answers;
}

TokenIdentity compare_tokens(methods::DecodingMethod& method, engine::Session& session,
                             std::span<const PlannedPrompt> prompts,
                             const Conversation& conversation, const AnswerOptions& options,
                             PlainAnswers& plain, base::Clock& clock,
                             const std::function<void()>& tick) {
  if (plain.answer.empty())
    plain = decode_plainly(session, prompts, conversation, options, clock, tick);
  const auto per_prompt = static_cast<size_t>(options.per_prompt);
  EVALRUN_CHECK(plain.answer.size() == prompts.size() * per_prompt, "{} answers to {} prompts",
                plain.answer.size(), prompts.size());
  const std::string dtype(engine::name_of(session.model().format()));
  TokenIdentity identity;
  identity.answers = static_cast<int>(plain.answer.size());
  std::vector<size_t> differing;
  for (size_t i = 0; i < plain.answer.size(); ++i) {
    const PlannedPrompt& prompt = prompts[i / per_prompt];
    const std::vector<int32_t>& expected = plain.answer[i];
    const std::vector<int32_t> found =
        decode_answer(method, session, prompts, plain, i, conversation, options, clock);
    identity.tokens += static_cast<int64_t>(expected.size());
    if (found == expected) {
      ++identity.identical;
    } else {
      const auto [e, f] =
          std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
      const auto index = static_cast<int>(e - expected.begin());
      if (e == expected.end() || f == found.end()) {
        identity.first.push_back(without_gap(prompt, index, -1, -1));
      } else if (!options.sampling.greedy()) {
        identity.first.push_back(without_gap(prompt, index, *e, *f));
      } else {
        PlainLogits logits(session, plain.prompt[i / per_prompt], expected);
        identity.first.push_back(difference(logits, prompt, index, *e, *f, dtype));
      }
      ++(identity.first.back().near_tie() ? identity.near_ties : identity.divergent);
      differing.push_back(i);
    }
    tick();
  }
  if (!options.sampling.greedy()) return identity;  // a replay follows greedy answers
  for (const size_t i : differing) {
    const PlannedPrompt& prompt = prompts[i / per_prompt];
    const methods::Replay replay(method, plain.answer[i]);
    decode_answer(method, session, prompts, plain, i, conversation, options, clock);
    const methods::ReplayTrace& trace = replay.trace();
    identity.replayed += trace.asked;
    PlainLogits logits(session, plain.prompt[i / per_prompt], plain.answer[i]);
    for (const methods::Disagreement& d : trace.disagreements)
      identity.replay.push_back(difference(
          logits, prompt, d.index, plain.answer[i][static_cast<size_t>(d.index)], d.found, dtype));
  }
  return identity;
}

}  // namespace evalrun::runners
