#include "reports/gate/lock_step.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace evalrun::reports {

double paired_gain(std::span<const double> base, std::span<const double> now) {
  EVALRUN_CHECK(!base.empty() && base.size() == now.size(), "{} times beside {}", base.size(),
                now.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < base.size(); ++i) ratios.push_back(now[i] / base[i]);
  const double middle = base::median(ratios);
  double sum_base = 0, sum_now = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    sum_base += std::min(base[i], kSpike * now[i] / middle);
    sum_now += std::min(now[i], kSpike * middle * base[i]);
  }
  return std::log(sum_base / sum_now);
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
