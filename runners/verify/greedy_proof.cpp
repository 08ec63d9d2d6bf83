#include "runners/verify/greedy_proof.h"

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

std::vector<int32_t> decode(methods::DecodingMethod& method, engine::Session& session,
                            const std::vector<int32_t>& prompt, const PlannedPrompt& planned,
                            const Conversation& conversation,
                            const engine::SamplingParams& sampling, uint64_t seed,
                            base::Clock& clock) {
  methods::TurnRequest request;
  request.prompt = prompt;
  request.max_new = planned.max_new;
  request.stop_ids = conversation.stop_ids();
  std::optional<methods::StopText> stop_text = conversation.stop_text(planned.prompt);
  request.stop_text = stop_text ? &*stop_text : nullptr;
  request.sampling = sampling;
  request.seed = seed;
  session.reset();
  return methods::decode_turn(method, session, request, clock).tokens;
}

GreedyDifference difference(PlainLogits& logits, const PlannedPrompt& planned, int index,
                            int32_t expected, int32_t found, const std::string& dtype) {
  GreedyDifference d{planned.record.task, planned.record.id, index, expected, found};
  const auto [right, wrong] = logits.at(index, expected, found);
  d.gap = right - wrong;
  d.spacing = format_spacing(std::max(std::abs(right), std::abs(wrong)), dtype);
  return d;
}

// One answer is the beginning of the other: no two tokens to compare.
GreedyDifference ended_elsewhere(const PlannedPrompt& planned, int index) {
  GreedyDifference d{planned.record.task, planned.record.id, index};
  d.gap = std::numeric_limits<double>::infinity();
  return d;
}

}  // namespace

PlainAnswers decode_plainly(engine::Session& session, std::span<const PlannedPrompt> prompts,
                            const Conversation& conversation,
                            const engine::SamplingParams& sampling, uint64_t seed,
                            base::Clock& clock, const std::function<void()>& tick) {
  const auto plain = methods::parse_method("ar").info->build({}, {});
  PlainAnswers answers;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const PlannedPrompt& planned = prompts[i];
    answers.prompt.push_back(
        conversation.encode(planned.prompt, conversation.render(planned.prompt, {})));
    answers.answer.push_back(decode(*plain, session, answers.prompt.back(), planned, conversation,
                                    sampling, base::combine_seeds({seed, i}), clock));
    tick();
  }
  return answers;
}

GreedyProof prove_greedy(methods::DecodingMethod& method, engine::Session& session,
                         std::span<const PlannedPrompt> prompts, const Conversation& conversation,
                         PlainAnswers& plain, base::Clock& clock,
                         const std::function<void()>& tick) {
  if (plain.answer.empty())
    plain = decode_plainly(session, prompts, conversation, {}, 0, clock, tick);
  EVALRUN_CHECK(plain.answer.size() == prompts.size(), "{} answers to {} prompts",
                plain.answer.size(), prompts.size());
  const std::string dtype(engine::name_of(session.model().format()));
  GreedyProof proof;
  proof.prompts = static_cast<int>(prompts.size());
  std::vector<size_t> differing;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t>& expected = plain.answer[i];
    const std::vector<int32_t> found =
        decode(method, session, plain.prompt[i], prompts[i], conversation, {}, 0, clock);
    proof.tokens += static_cast<int64_t>(expected.size());
    if (found == expected) {
      ++proof.identical;
    } else {
      const auto [e, f] =
          std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
      const auto index = static_cast<int>(e - expected.begin());
      if (e == expected.end() || f == found.end()) {
        proof.first.push_back(ended_elsewhere(prompts[i], index));
      } else {
        PlainLogits logits(session, plain.prompt[i], expected);
        proof.first.push_back(difference(logits, prompts[i], index, *e, *f, dtype));
      }
      ++(proof.first.back().near_tie() ? proof.near_ties : proof.divergent);
      differing.push_back(i);
    }
    tick();
  }
  for (const size_t i : differing) {
    const methods::Replay replay(method, plain.answer[i]);
    decode(method, session, plain.prompt[i], prompts[i], conversation, {}, 0, clock);
    const methods::ReplayTrace& trace = replay.trace();
    proof.replayed += trace.asked;
    PlainLogits logits(session, plain.prompt[i], plain.answer[i]);
    for (const methods::Disagreement& d : trace.disagreements)
      proof.replay.push_back(difference(logits, prompts[i], d.index,
                                        plain.answer[i][static_cast<size_t>(d.index)], d.found,
                                        dtype));
  }
  return proof;
}

}  // namespace evalrun::runners
