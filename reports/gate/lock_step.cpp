#include "reports/gate/lock_step.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace evalrun::reports {

double session_effect(std::vector<double> differences) {
  EVALRUN_CHECK(!differences.empty(), "a session without prompts");
  std::sort(differences.begin(), differences.end());
  const size_t cut = differences.size() / 4;
  return base::mean(std::span(differences).subspan(cut, differences.size() - 2 * cut));
}

// Without any spread the test degenerates to a comparison.
double LockStepChange::p_below(double limit) const {
  if (standard_error > 0) return base::student_t_cdf((mean - limit) / standard_error, dof);
  return mean < limit ? 0.0 : 1.0;
}

std::optional<LockStepChange> lock_step_change(std::span<const double> effects, double confidence) {
  const auto t = base::t_interval(effects, confidence);
  if (!t) return std::nullopt;
  return LockStepChange{t->mean, t->standard_error, static_cast<double>(effects.size()) - 1,
                        t->interval};
}

}  // namespace evalrun::reports
