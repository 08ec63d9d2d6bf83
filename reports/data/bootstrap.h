// Paired cluster bootstrap over prompts: an interval that assumes no shape, for new prompts of the
// same kind (population). docs/coverage.md says how well it covers beside the t intervals.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/base/stats.h"
#include "reports/data/estimators.h"

namespace evalrun::reports {

inline constexpr int kResamples = 10'000;

uint64_t seed_of(std::string_view key);  // of a run's key

struct Resampling {
  uint64_t seed = 0;  // equal seeds and numbers of prompts draw the same prompts
  int resamples = kResamples;
  double confidence = 0.95;
};

// Percentile interval: units of the design are drawn with replacement from their stratum, as many
// as it has, each with all its numbers, and the estimate is made anew; of B such estimates the k-th
// smallest and k-th largest are the ends, k = floor((B + 1)(1 - confidence) / 2). Draws without an
// estimate (nothing decoded in any prompt drawn) are left out. nullopt for fewer than two units.
std::optional<base::Interval> bootstrap_interval(std::span<const PromptPair> pairs,
                                                 Estimator estimator, const Resampling& resampling,
                                                 const Design& design = {});
// The same of sum numerator / sum denominator.
std::optional<base::Interval> bootstrap_interval(std::span<const RatioTerm> terms,
                                                 const Resampling& resampling,
                                                 const Design& design = {});

}  // namespace evalrun::reports
