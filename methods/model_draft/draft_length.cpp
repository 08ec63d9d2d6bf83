#include "methods/model_draft/draft_length.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/sampling.h"

namespace evalrun::methods {

// Of log p = logit - log_sum: H = -sum p log p.
double entropy_of(std::span<const float> logits) {
  const double log_sum = engine::log_sum(logits);
  double entropy = 0;
  for (const float logit : logits) {
    const double log_p = static_cast<double>(logit) - log_sum;
    const double p = std::exp(log_p);
    if (p > 0) entropy -= p * log_p;
  }
  return std::max(entropy, 0.0);
}

DraftLength::DraftLength(const DraftLengthRule& rule)
    : rule_(rule), length_(rule.k), threshold_(rule.threshold) {
  EVALRUN_CHECK(rule.k >= 1 && rule.most >= rule.k, "k = {} of {}", rule.k, rule.most);
}

void DraftLength::start() {
  if (rule_.schedule != DraftLengthRule::Schedule::kHeuristic) length_ = rule_.k;
  if (!rule_.carry_threshold) threshold_ = rule_.threshold;
  acceptance_ = 0;
}

bool DraftLength::stops_at_entropy(double nats) const {
  constexpr double kCrossEntropy = 0.15;  // c: H(q, p) is taken for c H(q)
  return std::sqrt(kCrossEntropy * nats) > rule_.entropy;
}

int DraftLength::length() const { return static_cast<int>(length_); }

void DraftLength::verified(int drafted, int matched, int asked) {
  if (rule_.schedule != DraftLengthRule::Schedule::kConstant)
    length_ = matched == drafted ? std::min(length_ + 2, static_cast<double>(rule_.most))
                                 : std::max(length_ - 1, 1.0);
  if (!rule_.adapt_threshold) return;
  constexpr double kMemory = 0.5, kWanted = 0.9, kStep = 0.01, kSmooth = 0.9;
  acceptance_ = kMemory * acceptance_ + (1 - kMemory) * matched / drafted;
  double goal = threshold_;
  if (acceptance_ < kWanted)
    goal += kStep;
  else if (drafted < asked)
    goal -= kStep;
  threshold_ = kSmooth * threshold_ + (1 - kSmooth) * goal;
}

}  // namespace evalrun::methods
