#include "reports/figures/joined.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {

namespace {

// What a prompt adds to the sums whose statistic is the ln speedup: log_ratio, or quotient for
// kGeo.
Sums sums_of_pair(const PromptPair& p, Estimator estimator) {
  switch (estimator) {
    case Estimator::kSum:
      return {p.tokens, p.ns, p.base_tokens, p.base_ns};
    case Estimator::kGeo:
      return {std::log(p.tokens / p.ns) - std::log(p.base_tokens / p.base_ns), 1, 1, 1};
    case Estimator::kLegacy:
    case Estimator::kLegacyDecode:
      return {p.tokens / p.ns, 1, p.base_tokens / p.base_ns, 1};
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
}

// Units alone: kinds are part of the chance that gave a machine its prompts.
Design without_strata(Design design) {
  if (design.empty()) return design;
  std::fill(design.stratum.begin(), design.stratum.end(), 0);
  design.strata = nullptr;
  return design;
}

// ln speedup of a machine: how many units of equal weight it is worth, and what it says about the
// variance of one.
struct MachineLog {
  double log = 0, worth = 1;
  double unit_variance = 0, degrees = 0;
};

MachineLog log_of_machine(std::span<const PromptPair> pairs, double value, Estimator estimator,
                          const Design& design) {
  std::vector<Sums> sums;
  sums.reserve(pairs.size());
  for (const PromptPair& p : pairs) sums.push_back(sums_of_pair(p, estimator));
  const Units units = units_of(std::move(sums), design);
  MachineLog m{.log = std::log(value)};
  m.worth = std::max(1.0, std::min(units.effective_count(1), units.effective_count(3)));
  const auto j = jackknife(units, estimator == Estimator::kGeo ? quotient : log_ratio);
  if (!j) return m;
  m.unit_variance = m.worth * j->standard_error() * j->standard_error();
  m.degrees = units.most_degrees();
  return m;
}

std::optional<MachineSpread> spread_of(const std::vector<MachineLog>& machines) {
  if (machines.size() < 2) return std::nullopt;
  MachineSpread s;
  double variance = 0;  // of a unit
  for (const MachineLog& m : machines) {
    variance += m.degrees * m.unit_variance;
    s.within += m.degrees;
  }
  if (s.within < 1) return std::nullopt;
  variance /= s.within;
  constexpr double kRounding = 1e-18;
  if (variance < kRounding) return std::nullopt;
  double weights = 0, squares = 0, sum = 0;
  for (const MachineLog& m : machines) {
    const double weight = m.worth / variance;
    weights += weight, squares += weight * weight, sum += weight * m.log;
  }
  for (const MachineLog& m : machines)
    s.q += m.worth / variance * (m.log - sum / weights) * (m.log - sum / weights);
  s.dof = static_cast<double>(machines.size()) - 1;
  s.p = base::fisher_f_p(s.q / s.dof, s.dof, s.within);
  if (s.q > s.dof) {
    s.i2 = 1 - s.dof / s.q;
    s.tau = std::sqrt((s.q - s.dof) / (weights - squares / weights));
  }
  return s;
}

}  // namespace

JoinedSpeed join_machines(std::span<const PromptPair> pairs, std::span<const int> machine, int k,
                          Estimator estimator, const Design& design) {
  EVALRUN_CHECK(pairs.size() == machine.size(), "{} prompts of {}", machine.size(), pairs.size());
  std::vector<std::vector<size_t>> places(static_cast<size_t>(k));
  for (size_t i = 0; i < machine.size(); ++i) places[static_cast<size_t>(machine[i])].push_back(i);
  JoinedSpeed joined;
  joined.machines.resize(places.size());
  std::vector<MachineLog> logs;
  Design by_machine;
  std::vector<int> numbers(places.size(), -1);
  for (size_t m = 0; m < places.size(); ++m) {
    std::vector<PromptPair> own;
    for (const size_t i : places[m]) own.push_back(pairs[i]);
    Design room;
    const Design of_own = design.empty() ? Design() : Design(design.of(places[m], room));
    joined.machines[m] = speedup(own, estimator, of_own);
    if (!joined.machines[m]) continue;
    numbers[m] = static_cast<int>(by_machine.stratum.size());
    by_machine.stratum.push_back(0);
    // Prompts without a speed are in no mean.
    const std::vector<size_t> decoded = places_with_speeds(own);
    std::vector<PromptPair> with_speeds;
    for (const size_t i : decoded) with_speeds.push_back(own[i]);
    Design rest;
    const Design units = of_own.empty() ? Design() : without_strata(of_own.of(decoded, rest));
    logs.push_back(log_of_machine(with_speeds, joined.machines[m]->value, estimator, units));
  }
  joined.spread = spread_of(logs);
  if (logs.size() < 2) return joined;
  std::vector<PromptPair> all;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const int number = numbers[static_cast<size_t>(machine[i])];
    if (number < 0) continue;
    all.push_back(pairs[i]);
    by_machine.unit.push_back(number);
  }
  joined.like_these = speedup(all, estimator, by_machine);
  return joined;
}

}  // namespace evalrun::reports
