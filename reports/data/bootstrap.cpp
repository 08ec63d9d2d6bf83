#include "reports/data/bootstrap.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::reports {

namespace {

// Every estimator is a function of K sums over the prompts; `statistic` is that function.
template <size_t K, typename F>
std::optional<base::Interval> percentile_interval(const std::vector<std::array<double, K>>& prompts,
                                                  const Resampling& resampling,
                                                  const F& statistic) {
  EVALRUN_CHECK(resampling.resamples >= 1 && resampling.confidence > 0 && resampling.confidence < 1,
                "{} resamples, confidence {}", resampling.resamples, resampling.confidence);
  const uint64_t n = prompts.size();
  if (n < 2) return std::nullopt;
  base::Rng rng(resampling.seed);
  std::vector<double> estimates;
  estimates.reserve(static_cast<size_t>(resampling.resamples));
  for (int b = 0; b < resampling.resamples; ++b) {
    // Two prompts per random number and two chains of sums: twice as fast. The chance of a prompt
    // is off by less than 2^-32.
    std::array<double, K> sums = {}, more = {};
    for (uint64_t drawn = 0; drawn < n; drawn += 2) {
      const uint64_t bits = rng.next();
      const std::array<double, K>& x = prompts[((bits >> 32) * n) >> 32];
      for (size_t k = 0; k < K; ++k) sums[k] += x[k];
      if (drawn + 1 == n) break;
      const std::array<double, K>& y = prompts[((bits & 0xFFFFFFFFu) * n) >> 32];
      for (size_t k = 0; k < K; ++k) more[k] += y[k];
    }
    for (size_t k = 0; k < K; ++k) sums[k] += more[k];
    const double estimate = statistic(sums);
    if (std::isfinite(estimate)) estimates.push_back(estimate);
  }
  if (estimates.empty()) return std::nullopt;
  const double tail = (1 - resampling.confidence) / 2;
  const size_t k = std::max<size_t>(
      1, static_cast<size_t>(tail * static_cast<double>(estimates.size() + 1) + 1e-9));
  const auto lo = estimates.begin() + static_cast<std::ptrdiff_t>(k - 1);
  const auto hi = estimates.end() - static_cast<std::ptrdiff_t>(k);
  base::Interval interval;
  std::nth_element(estimates.begin(), lo, estimates.end());
  interval.lo = *lo;
  std::nth_element(estimates.begin(), hi, estimates.end());
  interval.hi = *hi;
  return interval;
}

}  // namespace

uint64_t seed_of(std::string_view key) {
  uint64_t seed = base::combine_seeds({key.size()});
  for (const char c : key) seed = base::mix64(seed ^ static_cast<unsigned char>(c));
  return seed;
}

std::optional<base::Interval> bootstrap_interval(std::span<const RatioTerm> terms,
                                                 const Resampling& resampling) {
  std::vector<std::array<double, 2>> prompts;
  for (const RatioTerm& t : terms) prompts.push_back({t.numerator, t.denominator});
  return percentile_interval(prompts, resampling, [](const auto& s) { return s[0] / s[1]; });
}

std::optional<base::Interval> bootstrap_interval(std::span<const PromptPair> pairs,
                                                 Estimator estimator,
                                                 const Resampling& resampling) {
  if (estimator == Estimator::kLegacy) return bootstrap_interval(speed_terms(pairs), resampling);
  if (estimator == Estimator::kGeo) {
    std::vector<std::array<double, 1>> prompts;
    for (const double log : log_ratios(pairs)) prompts.push_back({log});
    return percentile_interval(prompts, resampling, [&](const auto& s) {
      return std::exp(s[0] / static_cast<double>(prompts.size()));
    });
  }
  std::vector<std::array<double, 4>> prompts;
  for (const PromptPair& p : pairs) prompts.push_back({p.tokens, p.ns, p.base_tokens, p.base_ns});
  return percentile_interval(prompts, resampling,
                             [](const auto& s) { return (s[0] / s[1]) / (s[2] / s[3]); });
}

}  // namespace evalrun::reports
