#include "reports/data/jackknife.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace evalrun::reports {

double log_ratio(const Sums& s) { return std::log(s[0] / s[1]) - std::log(s[2] / s[3]); }

double quotient(const Sums& s) { return s[0] / s[1]; }

double Jackknife::standard_error() const {
  double squares = 0;
  for (const double d : deviations) squares += d * d;
  return std::sqrt(squares);
}

double Jackknife::kurtosis_dof() const {
  double largest = 0;
  for (const double d : deviations) largest = std::max(largest, std::fabs(d));
  double squares = 0, fourths = 0;
  for (const double d : deviations) {
    const double square = largest > 0 ? (d / largest) * (d / largest) : 0;
    squares += square, fourths += square * square;
  }
  // k - 1 = n fourths / squares^2 - 1 is never negative but for rounding.
  const auto n = static_cast<double>(deviations.size());
  const double excess = squares > 0 ? n * fourths / (squares * squares) - 1 : 0;
  return excess > 1e-12 ? 2 * n / excess : std::numeric_limits<double>::infinity();
}

std::optional<Jackknife> jackknife(std::span<const Sums> prompts, Statistic statistic) {
  if (prompts.size() < 2) return std::nullopt;
  Sums all = {};
  for (const Sums& p : prompts)
    for (size_t k = 0; k < all.size(); ++k) all[k] += p[k];
  Jackknife j;
  j.value = statistic(all);
  for (const Sums& p : prompts) {
    Sums rest = all;
    for (size_t k = 0; k < rest.size(); ++k) rest[k] -= p[k];
    j.deviations.push_back(statistic(rest));
    if (!std::isfinite(j.deviations.back())) return std::nullopt;
  }
  const double mean = base::mean(j.deviations);
  const auto n = static_cast<double>(prompts.size());
  const double scale = std::sqrt((n - 1) / n);
  for (double& d : j.deviations) d = scale * (d - mean);
  return j;
}

double effective_count(std::span<const double> weights) {
  double sum = 0, squares = 0;
  for (const double w : weights) sum += w, squares += w * w;
  return squares > 0 ? sum * sum / squares : 0;
}

base::Interval student_interval(const Jackknife& j, double dof, double confidence) {
  const double half =
      base::student_t_quantile((1 + confidence) / 2, std::max(1.0, dof)) * j.standard_error();
  return {j.value - half, j.value + half};
}

}  // namespace evalrun::reports
