#include "reports/data/jackknife.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/base/error.h"

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

std::vector<double> Units::column(size_t k) const {
  std::vector<double> values;
  for (const Sums& s : sums) values.push_back(s[k]);
  return values;
}

double Units::degrees(double n_eff) const {
  const auto n = static_cast<double>(sums.size());
  return n > 1 ? (n_eff - 1) * (n - n_strata()) / (n - 1) : 0;
}

Units units_of(std::span<const Sums> prompts, const Design& design) {
  Units u;
  if (design.empty()) {
    u.sums.assign(prompts.begin(), prompts.end());
    u.stratum.assign(prompts.size(), 0);
    u.sizes = {static_cast<int>(prompts.size())};
    return u;
  }
  EVALRUN_CHECK(design.unit.size() == prompts.size(), "a design of {} prompts for {}",
                design.unit.size(), prompts.size());
  u.sums.resize(design.stratum.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    for (size_t k = 0; k < prompts[i].size(); ++k)
      u.sums[static_cast<size_t>(design.unit[i])][k] += prompts[i][k];
  std::map<int, int> sizes;
  for (const int s : design.stratum) ++sizes[s];
  // Single units: one stratum, or the smallest other one where there is just one of them.
  constexpr int kSingle = -1;
  int singles = 0, smallest = kSingle;
  for (const auto& [s, size] : sizes) {
    singles += size == 1;
    if (size > 1 && (smallest == kSingle || size < sizes.at(smallest))) smallest = s;
  }
  const int pooled = singles == 1 ? smallest : kSingle;
  std::map<int, int> numbers;
  for (const int s : design.stratum) {
    const int of = sizes.at(s) == 1 ? pooled : s;
    const int number = numbers.try_emplace(of, static_cast<int>(numbers.size())).first->second;
    u.stratum.push_back(number);
    if (numbers.size() > u.sizes.size()) u.sizes.push_back(0);
    ++u.sizes[static_cast<size_t>(number)];
  }
  return u;
}

std::optional<Jackknife> jackknife(const Units& units, Statistic statistic) {
  if (units.sums.size() < 2) return std::nullopt;
  const size_t n_strata = units.sizes.size();
  Sums all = {};
  std::vector<Sums> strata(n_strata, Sums{});
  for (size_t u = 0; u < units.sums.size(); ++u)
    for (size_t k = 0; k < all.size(); ++k) {
      all[k] += units.sums[u][k];
      strata[static_cast<size_t>(units.stratum[u])][k] += units.sums[u][k];
    }
  Jackknife j;
  j.value = statistic(all);
  std::vector<double> means(n_strata, 0);
  for (size_t u = 0; u < units.sums.size(); ++u) {
    const auto s = static_cast<size_t>(units.stratum[u]);
    const double n = units.sizes[s];
    Sums rest = all;
    for (size_t k = 0; k < rest.size(); ++k)
      rest[k] = n_strata == 1
                    ? all[k] - units.sums[u][k]
                    : all[k] - strata[s][k] + (strata[s][k] - units.sums[u][k]) * n / (n - 1);
    j.deviations.push_back(statistic(rest));
    if (!std::isfinite(j.deviations.back())) return std::nullopt;
    means[s] += j.deviations.back();
  }
  for (size_t s = 0; s < n_strata; ++s) means[s] /= units.sizes[s];
  for (size_t u = 0; u < units.sums.size(); ++u) {
    const auto s = static_cast<size_t>(units.stratum[u]);
    const double n = units.sizes[s];
    j.deviations[u] = std::sqrt((n - 1) / n) * (j.deviations[u] - means[s]);
  }
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

std::optional<DesignedMean> mean_interval(std::span<const double> values, const Design& design,
                                          double confidence) {
  std::vector<Sums> prompts;
  for (const double v : values) prompts.push_back({v, 1, 1, 1});
  const Units units = units_of(prompts, design);
  const auto j = jackknife(units, quotient);
  if (!j) return std::nullopt;
  DesignedMean m;
  m.n_eff = effective_count(units.column(1));
  m.dof = std::max(1.0, units.degrees(m.n_eff));
  m.standard_error = j->standard_error();
  m.interval = student_interval(*j, m.dof, confidence);
  return m;
}

}  // namespace evalrun::reports
