#include "reports/data/jackknife.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
  values.reserve(sums.size());
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
  // By the design's numbers of strata, which are small.
  std::vector<int> sizes;
  for (const int s : design.stratum) {
    EVALRUN_CHECK(s >= 0, "stratum {}", s);
    if (static_cast<size_t>(s) >= sizes.size()) sizes.resize(static_cast<size_t>(s) + 1);
    ++sizes[static_cast<size_t>(s)];
  }
  // Single units: one stratum, or the smallest other one where there is just one of them.
  constexpr int kSingle = -1;
  int singles = 0, smallest = kSingle;
  for (size_t s = 0; s < sizes.size(); ++s) {
    singles += sizes[s] == 1;
    if (sizes[s] > 1 && (smallest == kSingle || sizes[s] < sizes[static_cast<size_t>(smallest)]))
      smallest = static_cast<int>(s);
  }
  const int pooled = singles == 1 ? smallest : kSingle;
  constexpr int kNone = -1;
  std::vector<int> numbers(sizes.size() + 1, kNone);  // of strata, the single ones' last
  u.stratum.reserve(design.stratum.size());
  for (const int s : design.stratum) {
    const int of = sizes[static_cast<size_t>(s)] == 1 ? pooled : s;
    int& number = of == kSingle ? numbers.back() : numbers[static_cast<size_t>(of)];
    if (number == kNone) {
      number = u.n_strata();
      u.sizes.push_back(0);
    }
    u.stratum.push_back(number);
    ++u.sizes[static_cast<size_t>(number)];
  }
  return u;
}

namespace {

// `kColumns`: how many of the sums the statistic is of, from the first on.
template <size_t kColumns, typename StatisticOf>
std::optional<Jackknife> jackknife_of(const Units& units, StatisticOf statistic) {
  const size_t n_units = units.sums.size(), n_strata = units.sizes.size();
  if (n_units < 2) return std::nullopt;
  Sums all = {};
  std::vector<Sums> strata(n_strata, Sums{});
  for (size_t u = 0; u < n_units; ++u)
    for (size_t k = 0; k < kColumns; ++k) {
      all[k] += units.sums[u][k];
      strata[static_cast<size_t>(units.stratum[u])][k] += units.sums[u][k];
    }
  Jackknife j;
  j.value = statistic(all);
  j.deviations.resize(n_units);
  std::vector<double> means(n_strata, 0), scale(n_strata);
  std::vector<Sums> others(n_strata, Sums{});
  for (size_t s = 0; s < n_strata; ++s) {
    const double n = units.sizes[s];
    scale[s] = std::sqrt((n - 1) / n);
    for (size_t k = 0; k < kColumns; ++k) others[s][k] = all[k] - strata[s][k];
  }
  bool finite = true;
  for (size_t u = 0; u < n_units; ++u) {
    const auto s = static_cast<size_t>(units.stratum[u]);
    const double n = units.sizes[s];
    Sums rest = {};
    for (size_t k = 0; k < kColumns; ++k)
      rest[k] = n_strata == 1 ? all[k] - units.sums[u][k]
                              : others[s][k] + (strata[s][k] - units.sums[u][k]) * n / (n - 1);
    j.deviations[u] = statistic(rest);
    finite = finite && std::isfinite(j.deviations[u]);
    means[s] += j.deviations[u];
  }
  if (!finite) return std::nullopt;
  for (size_t s = 0; s < n_strata; ++s) means[s] /= units.sizes[s];
  for (size_t u = 0; u < n_units; ++u) {
    const auto s = static_cast<size_t>(units.stratum[u]);
    j.deviations[u] = scale[s] * (j.deviations[u] - means[s]);
  }
  return j;
}

}  // namespace

// The two that reports ask for a million times are compiled into the loop.
std::optional<Jackknife> jackknife(const Units& units, Statistic statistic) {
  if (statistic == log_ratio)
    return jackknife_of<4>(units, [](const Sums& s) { return log_ratio(s); });
  if (statistic == quotient)
    return jackknife_of<2>(units, [](const Sums& s) { return quotient(s); });
  return jackknife_of<4>(units, statistic);
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
  prompts.reserve(values.size());
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
