#include "runners/measure/open_conversation.h"

#include <algorithm>
#include <utility>

#include "engine/base/rng.h"

namespace evalrun::runners {

methods::TurnRequest turn_request(const Suite& suite, const Conversation& conversation,
                                  const PlannedPrompt& planned, std::span<const int32_t> ids,
                                  uint64_t seed) {
  methods::TurnRequest request;
  request.prompt = ids;
  request.max_new = planned.max_new;
  if (!suite.ignore_eos) request.stop_ids = conversation.stop_ids();
  request.sampling = suite.sampling;
  request.seed = seed;
  return request;
}

OpenConversation::OpenConversation(const RunPlan& plan, const Conversation& conversation,
                                   const PlannedPrompt& planned, base::Clock& clock,
                                   results::GenerationRecord& g, std::vector<int32_t> held,
                                   const Answers* known)
    : plan_(plan),
      conversation_(conversation),
      planned_(planned),
      clock_(clock),
      g_(g),
      held_(std::move(held)),
      known_(known),
      stop_text_(plan.suite.ignore_eos ? std::nullopt : conversation.stop_text(planned.prompt)) {}

const methods::TurnRequest& OpenConversation::next() {
  const size_t turn = g_.turns.size();
  const int64_t begin = clock_.now_ns();
  ids_ = conversation_.encode(planned_.prompt, conversation_.render(planned_.prompt, g_.texts));
  g_.tokenize_ns += clock_.now_ns() - begin;
  request_ = turn_request(plan_.suite, conversation_, planned_, ids_,
                          turn == 0 ? g_.seed : base::combine_seeds({g_.seed, turn}));
  if (known_ != nullptr && turn < known_->size()) request_.known_answer = (*known_)[turn];
  request_.stop_text = stop_text_ ? &*stop_text_ : nullptr;
  // The last prompt token is always computed again: its logits give the first answer token.
  request_.keep = std::min(common_prefix(held_, ids_), static_cast<int>(ids_.size()) - 1);
  return request_;
}

void OpenConversation::take(results::TurnRecord turn) {
  g_.turns.push_back(std::move(turn));
  const int64_t decoded = clock_.now_ns();
  g_.texts.push_back(conversation_.decode(g_.turns.back().tokens));
  g_.detokenize_ns += clock_.now_ns() - decoded;
  held_ = std::move(ids_);
}

}  // namespace evalrun::runners
