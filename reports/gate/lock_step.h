// The statistic of two builds in lock step: both are loaded at once and take turns, a few steps
// each, so that each step of one has the same step of the other as its neighbour in time. Noise of
// the machine falls on both; what a process does to all of its steps alike (memory layout) is new
// in every session, a fresh pair of processes. So sessions are what is counted.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "engine/base/stats.h"

namespace evalrun::reports {

// ln of the ratio of two sums, `base` to `now`, over pairs of times: how many times faster the
// second is. Where a pair's ratio is more than kSpike times off that of the middle pair, the longer
// time counts as if it were just that: longer ones are the machine's, which took the processor
// away. So what all steps share shows in full, and so does a step that a build made up to kSpike
// times as slow; one that it made slower still, in part. Not empty, and all > 0.
inline constexpr double kSpike = 1.5;
double paired_gain(std::span<const double> base, std::span<const double> now);

// Mean over sessions with Student's t on their spread. nullopt for one session.
struct LockStepChange {
  double mean = 0, standard_error = 0, dof = 0;
  base::Interval interval;
  // Chance of a mean as low as this, or as high, if the true change were `limit`.
  double p_below(double limit) const;
  double p_above(double limit) const { return 1 - p_below(limit); }
};
std::optional<LockStepChange> lock_step_change(std::span<const double> effects, double confidence);

}  // namespace evalrun::reports
