// The statistic of two builds in lock step: both are loaded at once and take turns, a few steps
// each, so that each step of one has the same step of the other as its neighbour in time. Noise of
// the machine falls on both; what a process does to all of its steps alike (memory layout) is new
// in every session, a fresh pair of processes. So sessions are what is counted.
#pragma once
#include <cstdint>
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
// The same with every time in full.
double full_gain(std::span<const double> base, std::span<const double> now);

// Long steps: those that paired_gain() does not count in full, by the build that they are of.
struct LongSteps {
  int64_t pairs = 0, base = 0, now = 0;
  void add(const LongSteps& other);
  double base_share() const { return share(base); }
  double now_share() const { return share(now); }

 private:
  double share(int64_t steps) const {
    return pairs > 0 ? static_cast<double>(steps) / static_cast<double>(pairs) : 0;
  }
};
// Times as for paired_gain().
LongSteps count_long_steps(std::span<const double> base, std::span<const double> now);

// Long steps of one session: those that make the second build look slower, those that make it look
// faster, and by how much the share of the former is larger.
struct LongBalance {
  int64_t against = 0, in_favour = 0;
  double excess = 0;
};
// Chance of so many more against the second build if the machine makes all long steps, and so does
// it to both builds alike; 1 for one session. The larger of two p-values:
//   Student's t over the sessions' excesses. An interruption that hits several steps in a row, all
//     of one build, is a single chance event, whatever it makes long: a session is the smallest
//     part that has whole ones. Without a difference excesses are symmetric, which t bears well.
//   The exact binomial of all long steps. Where sessions have as many by chance, such as one each,
//     t sees no spread and is certain of anything.
double more_long_steps_p(std::span<const LongBalance> sessions);

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
