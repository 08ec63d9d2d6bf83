// A conversation while it is decoded, turn by turn: alone, or in a slot of a batch. It says what is
// to be decoded next and takes what was decoded.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "methods/open_turn.h"
#include "methods/stop_text.h"
#include "results/records.h"
#include "runners/measure/known_answers.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// One turn of `planned`, of these ids, as the suite says. They must outlive the request.
methods::TurnRequest turn_request(const Suite& suite, const Conversation& conversation,
                                  const PlannedPrompt& planned, std::span<const int32_t> ids,
                                  uint64_t seed);

class OpenConversation {
 public:
  // Adds turns, texts and the times of tokenising and detokenising to `g`, whose seed it starts
  // from. `held`: tokens that the sequence holds already. `known`: plain decoding's answers, for a
  // method that needs them; null for others. All must outlive the object, which stays where it is
  // while a turn is decoded.
  OpenConversation(const RunPlan& plan, const Conversation& conversation,
                   const PlannedPrompt& planned, base::Clock& clock, results::GenerationRecord& g,
                   std::vector<int32_t> held = {}, const Answers* known = nullptr);
  OpenConversation(const OpenConversation&) = delete;
  OpenConversation& operator=(const OpenConversation&) = delete;

  bool ended() const { return g_.turns.size() == planned_.prompt.turns.size(); }
  // Once per turn; stays as it is until take().
  const methods::TurnRequest& next();
  void take(results::TurnRecord turn);
  // The prompt of the turn that was taken last.
  const std::vector<int32_t>& held() const { return held_; }

 private:
  const RunPlan& plan_;
  const Conversation& conversation_;
  const PlannedPrompt& planned_;
  base::Clock& clock_;
  results::GenerationRecord& g_;
  std::vector<int32_t> ids_, held_;
  const Answers* known_;
  std::optional<methods::StopText> stop_text_;
  methods::TurnRequest request_;
};

}  // namespace evalrun::runners
