#include "runners/measure/replay_paths.h"

#include <algorithm>
#include <cmath>

#include "results/generation_queries.h"
#include "runners/measure/plain_logits.h"

namespace evalrun::runners {

std::optional<Answers> ReplayPaths::stored(int arm, int prompt) const {
  for (size_t a = 0; a < plan_.arms.size(); ++a) {
    if (plan_.arms[a].model != plan_.arms[static_cast<size_t>(arm)].model) continue;
    Answers answers =
        results::replayed_tokens(store_, arm_ids_[a], prompt_ids_[static_cast<size_t>(prompt)]);
    if (!answers.empty()) return answers;
  }
  return std::nullopt;
}

const Answers& ReplayPaths::of(int arm, int prompt, const std::function<Answers()>& decode) {
  const std::pair key(plan_.arms[static_cast<size_t>(arm)].model.get(), prompt);
  const auto found = answers_.find(key);
  if (found != answers_.end()) return found->second;
  std::optional<Answers> known = stored(arm, prompt);
  return answers_.emplace(key, known ? std::move(*known) : decode()).first->second;
}

void ReplayPaths::add_gaps(int arm, int prompt, const Conversation& conversation,
                           engine::Session& session, results::GenerationRecord& g) {
  const engine::Model* model = plan_.arms[static_cast<size_t>(arm)].model.get();
  const PlannedPrompt& planned = plan_.prompts[static_cast<size_t>(prompt)];
  const std::string dtype(engine::name_of(session.model().format()));
  std::vector<std::string> earlier;  // answers before the turn at hand
  for (size_t turn = 0; turn < g.turns.size(); ++turn) {
    std::vector<int32_t> ids;
    std::optional<PlainLogits> logits;
    for (results::DivergenceRecord& d : g.turns[turn].divergences) {
      const Place place(model, prompt, turn, d.index, d.found);
      auto known = gaps_.find(place);
      if (known == gaps_.end()) {
        if (!logits) {
          ids = conversation.encode(planned.prompt, conversation.render(planned.prompt, earlier));
          logits.emplace(session, ids, g.turns[turn].tokens);
        }
        const auto [right, wrong] = logits->at(d.index, d.expected, d.found);
        const double spacing = format_spacing(std::max(std::abs(right), std::abs(wrong)), dtype);
        known = gaps_.emplace(place, std::pair(right - wrong, spacing)).first;
      }
      d.gap = known->second.first;
      d.spacing = known->second.second;
    }
    earlier.push_back(g.texts[turn]);
  }
}

}  // namespace evalrun::runners
