#include "runners/measure/text_likelihood.h"

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "evaluators/by_model.h"
#include "runners/measure/forced_logits.h"

namespace evalrun::runners {
namespace {

// Tokens of one text, added one by one.
class LikelihoodSum {
 public:
  explicit LikelihoodSum(const engine::SamplingParams& sampling) : sampling_(sampling) {}

  void add(std::span<const float> logits, int32_t token) {
    const auto at = static_cast<size_t>(token);
    ++sum_.tokens;
    sum_.nll += engine::log_sum(logits) - static_cast<double>(logits[at]);
    if (sampling_.greedy()) return;
    engine::warp(logits, sampling_, prob_, scratch_);
    if (!(prob_[at] > 0)) {
      ++sum_.impossible;
      return;
    }
    double entropy = 0, tail = 0;
    for (const double p : prob_) {
      if (!(p > 0)) continue;
      entropy -= p * std::log(p);
      if (p < evaluators::kRareProbability) tail += p;
    }
    sum_.surprise += -std::log(prob_[at]) - entropy;
    sum_.rare += (prob_[at] < evaluators::kRareProbability ? 1 : 0) - tail;
  }
  const TextLikelihood& sum() const { return sum_; }

 private:
  const engine::SamplingParams sampling_;
  TextLikelihood sum_;
  std::vector<double> prob_;
  engine::WarpScratch scratch_;
};

}  // namespace

TextLikelihood text_likelihood(engine::Session& session, std::span<const int32_t> prompt,
                               std::span<const int32_t> text,
                               const engine::SamplingParams& sampling) {
  EVALRUN_CHECK(!prompt.empty() && !text.empty(), "{} tokens after {}", text.size(), prompt.size());
  session.reset();
  if (prompt.size() > 1) session.prefill(prompt.first(prompt.size() - 1));
  LikelihoodSum sum(sampling);
  forced_logits(session, prompt.back(), text,
                [&](size_t i, std::span<const float> logits) { sum.add(logits, text[i]); });
  return sum.sum();
}

}  // namespace evalrun::runners
