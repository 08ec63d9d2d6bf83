#include "reports/data/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {

namespace {

// Every estimator is a function of sums over the prompts; `statistic` is that function.
template <typename F>
std::optional<base::Interval> percentile_interval(const Units& units, const Resampling& resampling,
                                                  const F& statistic) {
  EVALRUN_CHECK(resampling.resamples >= 1 && resampling.confidence > 0 && resampling.confidence < 1,
                "{} resamples, confidence {}", resampling.resamples, resampling.confidence);
  if (units.sums.size() < 2) return std::nullopt;
  std::vector<std::vector<Sums>> strata(units.strata->sizes.size());
  for (size_t u = 0; u < units.sums.size(); ++u)
    strata[static_cast<size_t>(units.strata->of[u])].push_back(units.sums[u]);
  base::Rng rng(resampling.seed);
  std::vector<double> estimates;
  estimates.reserve(static_cast<size_t>(resampling.resamples));
  for (int b = 0; b < resampling.resamples; ++b) {
    // Two units per random number and two chains of sums: twice as fast. The chance of a unit is
    // off by less than 2^-32.
    Sums sums = {}, more = {};
    for (const std::vector<Sums>& of : strata) {
      const uint64_t n = of.size();
      for (uint64_t drawn = 0; drawn < n; drawn += 2) {
        const uint64_t bits = rng.next();
        const Sums& x = of[((bits >> 32) * n) >> 32];
        for (size_t k = 0; k < sums.size(); ++k) sums[k] += x[k];
        if (drawn + 1 == n) break;
        const Sums& y = of[((bits & 0xFFFFFFFFu) * n) >> 32];
        for (size_t k = 0; k < sums.size(); ++k) more[k] += y[k];
      }
    }
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += more[k];
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
                                                 const Resampling& resampling,
                                                 const Design& design) {
  std::vector<Sums> prompts;
  for (const RatioTerm& t : terms) prompts.push_back({t.numerator, t.denominator, 1, 1});
  return percentile_interval(units_of(std::move(prompts), design), resampling,
                             [](const Sums& s) { return s[0] / s[1]; });
}

std::optional<base::Interval> bootstrap_interval(std::span<const PromptPair> pairs,
                                                 Estimator estimator, const Resampling& resampling,
                                                 const Design& design) {
  Design room;
  if (estimator == Estimator::kLegacy || estimator == Estimator::kLegacyDecode) {
    const SpeedTerms speeds = speed_terms(pairs, estimator);
    return bootstrap_interval(speeds.terms, resampling, design.of(speeds.places, room));
  }
  std::vector<Sums> prompts;
  if (estimator == Estimator::kGeo) {
    const Design& with_speeds = design.of(places_with_speeds(pairs), room);
    for (const double log : log_ratios(pairs)) prompts.push_back({log, 1, 1, 1});
    return percentile_interval(units_of(std::move(prompts), with_speeds), resampling,
                               [](const Sums& s) { return std::exp(s[0] / s[1]); });
  }
  for (const PromptPair& p : pairs) prompts.push_back({p.tokens, p.ns, p.base_tokens, p.base_ns});
  return percentile_interval(units_of(std::move(prompts), design), resampling,
                             [](const Sums& s) { return (s[0] / s[1]) / (s[2] / s[3]); });
}

}  // namespace evalrun::reports
