#include "runners/serve/token_scores.h"

#include "engine/base/error.h"
#include "engine/sampling.h"
#include "runners/measure/forced_logits.h"

namespace evalrun::runners {

std::vector<TokenScore> score_tokens(engine::Session& session, std::span<const int32_t> ids,
                                     size_t first, int n_best, const std::function<void()>& check) {
  EVALRUN_CHECK(first >= 1 && first <= ids.size(), "token {} of {}", first, ids.size());
  session.reset();
  if (first > 1) session.prefill(ids.first(first - 1));
  std::vector<TokenScore> scores;
  scores.reserve(ids.size() - first);
  const std::span<const int32_t> text = ids.subspan(first);
  forced_logits(session, ids[first - 1], text, [&](size_t i, std::span<const float> logits) {
    check();
    const double sum = engine::log_sum(logits);
    TokenScore score;
    score.token = text[i];
    score.log_prob = static_cast<double>(logits[static_cast<size_t>(text[i])]) - sum;
    score.greedy = engine::argmax(logits) == text[i];
    if (n_best > 0)
      for (const engine::TokenLogit& best : engine::top_k(logits, n_best))
        score.best.emplace_back(best.token, static_cast<double>(best.logit) - sum);
    scores.push_back(std::move(score));
  });
  return scores;
}

}  // namespace evalrun::runners
