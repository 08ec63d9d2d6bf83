// The plain way to the figures of reports/data/jackknife.h and estimators.h, by maps and without a
// shortcut. What reports compute quickly is equal to it to the bit.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/data/design.h"
#include "reports/data/estimators.h"
#include "reports/data/jackknife.h"

namespace evalrun::tests {

inline uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }

// Numbers 0, 1, ... in the order of first appearance.
template <typename Key>
int plain_number_of(std::map<Key, int>& known, const Key& key) {
  return known.try_emplace(key, static_cast<int>(known.size())).first->second;
}

inline reports::Design plain_part(const reports::Design& whole, std::span<const size_t> places) {
  reports::Design part;
  // All of them: with the numbers they have, whose order is that of the sums.
  if (whole.empty() || places.size() == whole.unit.size()) return whole;
  std::map<int, int> units;
  for (const size_t p : places) {
    part.unit.push_back(plain_number_of(units, whole.unit[p]));
    if (units.size() > part.stratum.size())
      part.stratum.push_back(whole.stratum[static_cast<size_t>(whole.unit[p])]);
  }
  return part;
}

// As PromptDesigns(prompts, scope).of(ids).
inline reports::Design plain_design(const std::vector<reports::PromptInfo>& prompts,
                                    reports::Scope scope, std::span<const int64_t> ids) {
  using Names = std::pair<std::string, std::string>;
  if (scope == reports::Scope::kFixedSet) return {};
  std::map<Names, int> kind_numbers, group_numbers;
  std::map<int64_t, int> kind_of, group_of;
  std::map<int64_t, bool> named_of;
  for (const reports::PromptInfo& p : prompts) {
    const std::string task = p.group.starts_with('/') ? "" : p.task;
    kind_of[p.id] = plain_number_of(kind_numbers, Names(p.task, p.category));
    group_of[p.id] = plain_number_of(
        group_numbers, p.group.empty() ? Names(p.task, "\n" + p.key) : Names(task, "=" + p.group));
    named_of[p.id] = !p.category.empty();
  }
  std::set<int> kinds_seen;
  bool named = false;
  for (const int64_t id : ids) {
    kinds_seen.insert(kind_of.at(id));
    named = named || named_of.at(id);
  }
  const bool by_kind = scope == reports::Scope::kNewKinds && (named || kinds_seen.size() > 1);
  reports::Design d;
  std::map<int, int> units;
  std::vector<std::set<int>> kinds;  // by unit
  for (const int64_t id : ids) {
    const int unit = plain_number_of(units, by_kind ? kind_of.at(id) : group_of.at(id));
    kinds.resize(units.size());
    if (scope == reports::Scope::kSameKind) kinds[static_cast<size_t>(unit)].insert(kind_of.at(id));
    d.unit.push_back(unit);
  }
  std::map<std::set<int>, int> strata;
  for (const std::set<int>& of : kinds) d.stratum.push_back(plain_number_of(strata, of));
  if (strata.size() < 2 && units.size() == ids.size()) return {};
  return d;
}

struct PlainUnits {
  std::vector<reports::Sums> sums;
  std::vector<int> stratum, sizes;
  double effective_count(size_t column) const {
    double sum = 0, squares = 0;
    for (const reports::Sums& s : sums) sum += s[column], squares += s[column] * s[column];
    return squares > 0 ? sum * sum / squares : 0;
  }
  double degrees(double n_eff) const {
    const auto n = static_cast<double>(sums.size()), strata = static_cast<double>(sizes.size());
    return n > 1 ? (n_eff - 1) * (n - strata) / (n - 1) : 0;
  }
};

// Single units: one stratum, or the smallest other one where there is just one of them.
inline void pool_single_units(const reports::Design& design, PlainUnits& u) {
  constexpr int kSingle = -1;
  std::map<int, int> sizes, numbers;
  for (const int s : design.stratum) ++sizes[s];
  int singles = 0, smallest = kSingle;
  for (const auto& [stratum, size] : sizes) {
    singles += size == 1;
    if (size > 1 && (smallest == kSingle || size < sizes.at(smallest))) smallest = stratum;
  }
  for (const int s : design.stratum) {
    const int pooled = singles == 1 ? smallest : kSingle;
    const int number = plain_number_of(numbers, sizes.at(s) == 1 ? pooled : s);
    u.sizes.resize(numbers.size());
    ++u.sizes[static_cast<size_t>(number)];
    u.stratum.push_back(number);
  }
}

inline PlainUnits plain_units(std::span<const reports::Sums> prompts,
                              const reports::Design& design) {
  PlainUnits u;
  if (design.empty()) {
    u.sums.assign(prompts.begin(), prompts.end());
    u.stratum.assign(prompts.size(), 0);
    u.sizes = {static_cast<int>(prompts.size())};
    return u;
  }
  u.sums.resize(design.stratum.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    for (size_t k = 0; k < prompts[i].size(); ++k)
      u.sums[static_cast<size_t>(design.unit[i])][k] += prompts[i][k];
  pool_single_units(design, u);
  return u;
}

struct PlainJackknife {
  double value = 0;
  std::vector<double> deviations;
  double standard_error() const {
    double squares = 0;
    for (const double d : deviations) squares += d * d;
    return std::sqrt(squares);
  }
  double kurtosis_dof() const {
    double largest = 0;
    for (const double d : deviations) largest = std::max(largest, std::fabs(d));
    double squares = 0, fourths = 0;
    for (const double d : deviations) {
      const double square = largest > 0 ? (d / largest) * (d / largest) : 0;
      squares += square, fourths += square * square;
    }
    const auto n = static_cast<double>(deviations.size());
    const double excess = squares > 0 ? n * fourths / (squares * squares) - 1 : 0;
    return excess > 1e-12 ? 2 * n / excess : std::numeric_limits<double>::infinity();
  }
};

inline std::optional<PlainJackknife> plain_jackknife(const PlainUnits& units,
                                                     reports::Statistic statistic) {
  if (units.sums.size() < 2) return std::nullopt;
  reports::Sums all = {};
  std::vector<reports::Sums> strata(units.sizes.size(), reports::Sums{});
  for (size_t u = 0; u < units.sums.size(); ++u)
    for (size_t k = 0; k < all.size(); ++k) {
      all[k] += units.sums[u][k];
      strata[static_cast<size_t>(units.stratum[u])][k] += units.sums[u][k];
    }
  PlainJackknife j;
  j.value = statistic(all);
  std::vector<double> means(units.sizes.size(), 0);
  for (size_t u = 0; u < units.sums.size(); ++u) {
    const auto s = static_cast<size_t>(units.stratum[u]);
    const double n = units.sizes[s];
    reports::Sums rest = {};
    for (size_t k = 0; k < all.size(); ++k)
      rest[k] = units.sizes.size() == 1
                    ? all[k] - units.sums[u][k]
                    : all[k] - strata[s][k] + (strata[s][k] - units.sums[u][k]) * n / (n - 1);
    j.deviations.push_back(statistic(rest));
    if (!std::isfinite(j.deviations.back())) return std::nullopt;
    means[s] += j.deviations.back();
  }
  for (size_t s = 0; s < means.size(); ++s) means[s] /= units.sizes[s];
  for (size_t u = 0; u < units.sums.size(); ++u) {
    const auto s = static_cast<size_t>(units.stratum[u]);
    const double n = units.sizes[s];
    j.deviations[u] = std::sqrt((n - 1) / n) * (j.deviations[u] - means[s]);
  }
  return j;
}

inline base::Interval plain_student_interval(const PlainJackknife& j, double dof,
                                             double confidence) {
  const double half =
      base::student_t_quantile((1 + confidence) / 2, std::max(1.0, dof)) * j.standard_error();
  return {j.value - half, j.value + half};
}

inline std::optional<reports::DesignedMean> plain_mean_interval(std::span<const double> values,
                                                                const reports::Design& design) {
  std::vector<reports::Sums> prompts;
  for (const double v : values) prompts.push_back({v, 1, 1, 1});
  const PlainUnits units = plain_units(prompts, design);
  const auto j = plain_jackknife(units, reports::quotient);
  if (!j) return std::nullopt;
  reports::DesignedMean m;
  m.n_eff = units.effective_count(1);
  m.dof = std::max(1.0, units.degrees(m.n_eff));
  m.standard_error = j->standard_error();
  m.interval = plain_student_interval(*j, m.dof, 0.95);
  return m;
}

inline std::optional<reports::Estimate> plain_speedup_sum(
    std::span<const reports::PromptPair> pairs, const reports::Design& design) {
  std::vector<reports::Sums> prompts;
  std::vector<size_t> places;
  reports::Sums all = {};
  for (size_t i = 0; i < pairs.size(); ++i) {
    const reports::PromptPair& p = pairs[i];
    const reports::Sums sums = {p.tokens, p.ns, p.base_tokens, p.base_ns};
    if (sums == reports::Sums{}) continue;
    prompts.push_back(sums);
    places.push_back(i);
    for (size_t k = 0; k < all.size(); ++k) all[k] += sums[k];
  }
  if (std::any_of(all.begin(), all.end(), [](double sum) { return sum <= 0; })) return std::nullopt;
  const PlainUnits units = plain_units(prompts, plain_part(design, places));
  reports::Estimate e;
  e.value = (all[0] / all[1]) / (all[2] / all[3]);
  e.n = static_cast<int>(prompts.size());
  e.n_eff = std::min(units.effective_count(1), units.effective_count(3));
  if (const auto j = plain_jackknife(units, reports::log_ratio)) {
    const base::Interval logs =
        plain_student_interval(*j, std::min(units.degrees(e.n_eff), j->kurtosis_dof()), 0.95);
    e.interval = base::Interval{std::exp(logs.lo), std::exp(logs.hi)};
  }
  return e;
}

inline std::optional<reports::Estimate> plain_ratio_of_sums(
    std::span<const reports::RatioTerm> terms, const reports::Design& design) {
  std::vector<reports::PromptPair> pairs;
  for (const reports::RatioTerm& t : terms) {
    reports::PromptPair& p = pairs.emplace_back();
    if (t.numerator != 0 || t.denominator != 0)
      p = {.base_tokens = 1, .base_ns = 1, .tokens = t.numerator, .ns = t.denominator};
  }
  return plain_speedup_sum(pairs, design);
}

}  // namespace evalrun::tests
