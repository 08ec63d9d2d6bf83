// The statistic of two builds in lock step: both are loaded at once and take turns, visit by visit,
// so that each generation of one has a neighbour in time of the other. Noise of the machine falls
// on both; what a process does to all of its prompts alike (memory layout) is new in every session,
// a fresh pair of processes. So sessions are what is counted.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "engine/base/stats.h"

namespace evalrun::reports {

// Of one session: the mean of the middle half of the prompts' log differences, so that a quarter of
// them may be hit by spikes on either side. Not empty.
double session_effect(std::vector<double> differences);

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
