#include "reports/data/jackknife.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace evalrun::reports {

double log_ratio(const Sums& s) { return std::log(s[0] / s[1]) - std::log(s[2] / s[3]); }

double log_quotient(const Sums& s) { return std::log(s[0] / s[1]); }

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

double Units::effective_count(size_t column) const {
  double sum = 0, squares = 0;
  for (const Sums& s : sums) sum += s[column], squares += s[column] * s[column];
  return squares > 0 ? sum * sum / squares : 0;
}

Units units_of(std::vector<Sums> prompts, const Design& design) {
  Units u;
  u.strata = strata_of(design, prompts.size());
  // A sum of one number is that number; -0 for 0 makes no difference to what is added up from 0.
  if (u.strata->one_each) {
    u.sums = std::move(prompts);
    return u;
  }
  u.sums.resize(design.units());
  for (size_t i = 0; i < prompts.size(); ++i)
    for (size_t k = 0; k < prompts[i].size(); ++k)
      u.sums[static_cast<size_t>(design.unit[i])][k] += prompts[i][k];
  return u;
}

namespace {

// `Columns`: an array of the sums that the statistic is of. `sums_of(u)`: those of a unit. Every
// sum has one accumulator and goes unit by unit: figures must not depend on how they are made.
template <typename Columns, typename SumsOf, typename StatisticOf>
std::optional<Jackknife> jackknife_of(const Strata& strata, const SumsOf& sums_of,
                                      const StatisticOf& statistic) {
  const size_t n_units = strata.of.size(), n_strata = strata.sizes.size();
  if (n_units < 2) return std::nullopt;
  Columns all = {};
  std::vector<Columns> within(n_strata, Columns{});
  for (size_t u = 0; u < n_units; ++u) {
    const Columns own = sums_of(u);
    for (size_t k = 0; k < own.size(); ++k) all[k] += own[k];
    if (n_strata == 1) continue;
    Columns& stratum = within[static_cast<size_t>(strata.of[u])];
    for (size_t k = 0; k < own.size(); ++k) stratum[k] += own[k];
  }
  std::vector<Columns> outside(n_strata, Columns{});
  for (size_t s = 0; s < n_strata; ++s)
    for (size_t k = 0; k < all.size(); ++k) outside[s][k] = all[k] - within[s][k];
  Jackknife j;
  j.value = statistic(all);
  j.deviations.resize(n_units);
  std::vector<double> means(n_strata, 0);
  bool finite = true;
  for (size_t u = 0; u < n_units; ++u) {
    const auto s = static_cast<size_t>(strata.of[u]);
    const Columns own = sums_of(u);
    Columns rest = {};
    if (n_strata == 1)
      for (size_t k = 0; k < own.size(); ++k) rest[k] = all[k] - own[k];
    else
      for (size_t k = 0; k < own.size(); ++k)
        rest[k] = outside[s][k] + (within[s][k] - own[k]) * strata.n[s] / strata.others[s];
    const double without = statistic(rest);
    finite = finite && std::isfinite(without);
    j.deviations[u] = without;
    means[s] += without;
  }
  if (!finite) return std::nullopt;
  for (size_t s = 0; s < n_strata; ++s) means[s] /= strata.n[s];
  for (size_t u = 0; u < n_units; ++u) {
    const auto s = static_cast<size_t>(strata.of[u]);
    j.deviations[u] = strata.scale[s] * (j.deviations[u] - means[s]);
  }
  return j;
}

using TwoSums = std::array<double, 2>;

constexpr auto kQuotient = [](const TwoSums& s) { return s[0] / s[1]; };

// A mean over prompts, as quotient() of units_of() {value, 1, 1, 1}.
std::optional<Jackknife> jackknife_mean(std::span<const double> values, const Design& design,
                                        const Strata& strata) {
  if (strata.one_each)
    return jackknife_of<TwoSums>(
        strata,
        [&](size_t u) {
          return TwoSums{values[u], 1};
        },
        kQuotient);
  std::vector<TwoSums> sums(strata.of.size(), TwoSums{});
  for (size_t i = 0; i < values.size(); ++i) {
    TwoSums& unit = sums[static_cast<size_t>(design.unit[i])];
    unit[0] += values[i], unit[1] += 1;
  }
  return jackknife_of<TwoSums>(
      strata, [&](size_t u) { return sums[u]; }, kQuotient);
}

base::Interval student_interval_of(double value, double standard_error, double dof,
                                   double confidence) {
  const double half =
      base::student_t_quantile((1 + confidence) / 2, std::max(1.0, dof)) * standard_error;
  return {value - half, value + half};
}

}  // namespace

// Those that reports ask for a million times are compiled into the loop.
std::optional<Jackknife> jackknife(const Units& units, Statistic statistic) {
  const auto sums_of = [&](size_t u) { return units.sums[u]; };
  const auto first_two = [&](size_t u) { return TwoSums{units.sums[u][0], units.sums[u][1]}; };
  if (statistic == log_ratio)
    return jackknife_of<Sums>(*units.strata, sums_of, [](const Sums& s) { return log_ratio(s); });
  if (statistic == log_quotient)
    return jackknife_of<TwoSums>(*units.strata, first_two,
                                 [](const TwoSums& s) { return std::log(s[0] / s[1]); });
  if (statistic == quotient) return jackknife_of<TwoSums>(*units.strata, first_two, kQuotient);
  return jackknife_of<Sums>(*units.strata, sums_of, statistic);
}

base::Interval student_interval(const Jackknife& j, double dof, double confidence) {
  return student_interval_of(j.value, j.standard_error(), dof, confidence);
}

std::optional<DesignedMean> mean_interval(std::span<const double> values, const Design& design,
                                          double confidence) {
  const std::shared_ptr<const Strata> strata = strata_of(design, values.size());
  const auto j = jackknife_mean(values, design, *strata);
  if (!j) return std::nullopt;
  DesignedMean m;
  m.n_eff = strata->n_eff;
  m.dof = std::max(1.0, strata->degrees(m.n_eff));
  m.standard_error = j->standard_error();
  m.interval = student_interval_of(j->value, m.standard_error, m.dof, confidence);
  return m;
}

}  // namespace evalrun::reports
