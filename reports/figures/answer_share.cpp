#include "reports/figures/answer_share.h"

#include <algorithm>
#include <cmath>

#include "reports/data/jackknife.h"

namespace evalrun::reports {

namespace {

AnswerShare share_of_trials(double value, const std::optional<double>& trials) {
  AnswerShare share{.value = value, .n_eff = trials.value_or(1), .interval = std::nullopt};
  if (trials)
    share.interval = base::wilson_interval(value, static_cast<size_t>(std::floor(*trials)), 0.95);
  return share;
}

}  // namespace

std::optional<double> independent_prompts(std::span<const double> values, const Design& design,
                                          double variance) {
  const auto n = static_cast<double>(values.size());
  if (design.empty()) return n > 1 ? std::optional(n) : std::nullopt;
  const auto designed = mean_interval(values, design);
  if (!designed) return std::nullopt;
  const double error = designed->standard_error;
  return error > 0 ? std::clamp(variance / (error * error), 1.0, n) : std::min(n, designed->n_eff);
}

AnswerShare answer_share(std::span<const double> shares, const Design& design) {
  const auto n = static_cast<double>(shares.size());
  const double value = base::mean(shares);
  // The variance of answers of 0 and 1, one a prompt. Means over samples vary less: a prompt says
  // no more than one answer for that.
  const double variance = n > 1 ? value * (1 - value) * n / (n - 1) : 0;
  return share_of_trials(value, independent_prompts(shares, design, variance));
}

// No unit moves such a mean: its standard error is 0.
AnswerShare equal_answer_share(bool value, size_t prompts, const Design& design) {
  const auto n = static_cast<double>(prompts);
  std::optional<double> trials;
  if (design.empty()) {
    if (prompts > 1) trials = n;
  } else if (design.units() > 1) {
    trials = std::min(n, strata_of(design, prompts)->n_eff);
  }
  return share_of_trials(value ? 1 : 0, trials);
}

}  // namespace evalrun::reports
