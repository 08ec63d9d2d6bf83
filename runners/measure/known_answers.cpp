#include "runners/measure/known_answers.h"

#include <utility>

#include "results/generation_queries.h"

namespace evalrun::runners {

std::optional<Answers> KnownAnswers::stored(int arm, int prompt, int sample) const {
  const PlannedArm& asks = plan_.arms[static_cast<size_t>(arm)];
  for (size_t a = 0; a < plan_.arms.size(); ++a) {
    const PlannedArm& plain = plan_.arms[a];
    if (plain.record.role != "baseline" || plain.model != asks.model ||
        plain.record.batch != asks.record.batch)
      continue;
    Answers answers = results::answer_tokens(store_, arm_ids_[a],
                                             prompt_ids_[static_cast<size_t>(prompt)], sample);
    if (!answers.empty()) return answers;
  }
  return std::nullopt;
}

const Answers& KnownAnswers::of(int arm, int prompt, int sample,
                                const std::function<Answers()>& decode) {
  if (const Answers* known = find(arm, prompt, sample)) return *known;
  std::optional<Answers> known = stored(arm, prompt, sample);
  return answers_.emplace(place(arm, prompt, sample), known ? std::move(*known) : decode())
      .first->second;
}

const Answers* KnownAnswers::find(int arm, int prompt, int sample) const {
  const auto found = answers_.find(place(arm, prompt, sample));
  return found == answers_.end() ? nullptr : &found->second;
}

}  // namespace evalrun::runners
