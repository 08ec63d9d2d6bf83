// Percentiles of times that belong to prompts, with intervals for new prompts of the same kind.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/stats.h"

namespace evalrun::reports {

struct PromptTime {
  double ms = 0;
  int64_t weight = 1;  // how often it counts
  int prompt = 0;      // whose it is; numbers from 0
};

struct LoadPercentile {
  double value = 0;
  std::optional<base::Interval> interval;
};
struct LoadPercentiles {
  LoadPercentile p50, p95, p99;
  int prompts = 0;     // that have times
  int64_t values = 0;  // sum of the weights
};

// The values are those of reports/figures/batch_measures.h: of n, the one at place ceil(p n). The
// interval is the percentile bootstrap's: prompts are drawn with replacement, each with all its
// times. Absent for fewer than two prompts; nullopt for no times.
std::optional<LoadPercentiles> percentiles_by_prompt(std::vector<PromptTime> times, uint64_t seed,
                                                     double confidence = 0.95);

}  // namespace evalrun::reports
