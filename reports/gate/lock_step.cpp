#include "reports/gate/lock_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"

namespace evalrun::reports {

namespace {

// What is common to all pairs.
double middle_ratio(std::span<const double> base, std::span<const double> now) {
  EVALRUN_CHECK(!base.empty() && base.size() == now.size(), "{} times beside {}", base.size(),
                now.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < base.size(); ++i) ratios.push_back(now[i] / base[i]);
  return base::median(ratios);
}

}  // namespace

double paired_gain(std::span<const double> base, std::span<const double> now) {
  const double middle = middle_ratio(base, now);
  double sum_base = 0, sum_now = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    sum_base += std::min(base[i], kSpike * now[i] / middle);
    sum_now += std::min(now[i], kSpike * middle * base[i]);
  }
  return std::log(sum_base / sum_now);
}

double full_gain(std::span<const double> base, std::span<const double> now) {
  EVALRUN_CHECK(!base.empty() && base.size() == now.size(), "{} times beside {}", base.size(),
                now.size());
  return std::log(std::accumulate(base.begin(), base.end(), 0.0) /
                  std::accumulate(now.begin(), now.end(), 0.0));
}

void LongSteps::add(const LongSteps& other) {
  pairs += other.pairs;
  base += other.base;
  now += other.now;
}

LongSteps count_long_steps(std::span<const double> base, std::span<const double> now) {
  const double middle = middle_ratio(base, now);
  LongSteps steps;
  for (size_t i = 0; i < base.size(); ++i) {
    ++steps.pairs;
    if (base[i] > kSpike * now[i] / middle) ++steps.base;
    if (now[i] > kSpike * middle * base[i]) ++steps.now;
  }
  return steps;
}

double more_long_steps_p(std::span<const LongBalance> sessions) {
  std::vector<double> effects;  // below 0: to the second build's disadvantage, as gains are
  int64_t against = 0, all = 0;
  for (const LongBalance& s : sessions) {
    effects.push_back(-s.excess);
    against += s.against;
    all += s.against + s.in_favour;
  }
  const auto change = lock_step_change(effects, 0.95);
  if (!change) return 1;
  return std::max(change->p_below(0), base::binomial_upper_p(against, all, 0.5));
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
