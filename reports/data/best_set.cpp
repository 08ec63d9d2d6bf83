#include "reports/data/best_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "reports/data/jackknife.h"
#include "reports/data/max_t.h"

namespace evalrun::reports {
namespace {

// Of the prompts that all arms decoded, their places.
std::vector<size_t> decoded_by_all(std::span<const std::vector<TokensAndTime>> arms) {
  std::vector<size_t> places;
  places.reserve(arms.front().size());
  for (size_t i = 0; i < arms.front().size(); ++i)
    if (std::all_of(arms.begin(), arms.end(),
                    [&](const auto& a) { return a[i].tokens > 0 && a[i].ns > 0; }))
      places.push_back(i);
  return places;
}

Sums sums_of_prompt(const TokensAndTime& p, Estimator estimator) {
  switch (estimator) {
    case Estimator::kSum:
      return {p.tokens, p.ns, 1, 1};
    case Estimator::kGeo:
      return {std::log(p.tokens / p.ns), 1, 1, 1};
    case Estimator::kLegacy:
    case Estimator::kLegacyDecode:
      return {p.tokens / p.ns, 1, 1, 1};
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
}

// An arm's prompts as sums whose statistic is its ln speed: log_quotient, or quotient for kGeo.
Units units_of_arm(const std::vector<TokensAndTime>& prompts, std::span<const size_t> places,
                   Estimator estimator, const Design& design) {
  std::vector<Sums> sums;
  sums.reserve(places.size());
  for (const size_t i : places) sums.push_back(sums_of_prompt(prompts[i], estimator));
  return units_of(std::move(sums), design);
}

class Comparison {
 public:
  // degrees: units less strata.
  Comparison(const std::vector<Jackknife>& logs, double dof, double degrees, uint64_t seed,
             double confidence)
      : logs_(logs),
        m_(logs.size()),
        dof_(dof),
        confidence_(confidence),
        errors_(logs, degrees, seed) {}

  // Whether no other arm is faster than `a` beyond chance.
  bool may_be_fastest(size_t a) const {
    double largest = -std::numeric_limits<double>::infinity();
    std::vector<size_t> rivals;
    for (size_t b = 0; b < m_; ++b) {
      if (b == a) continue;
      const double ahead = logs_[b].value - logs_[a].value, error = errors_.standard_error(a, b);
      // Arms of the same times to the bit differ by nothing, and by no chance.
      if (error == 0 && ahead > 0) return false;
      if (error == 0) continue;
      largest = std::max(largest, as_normal(ahead / error, dof_));
      rivals.push_back(b);
    }
    return rivals.empty() || largest <= errors_.upper_bound(a, rivals, confidence_);
  }

  std::vector<ArmRank> ranks(size_t fastest) const {
    std::vector<ArmRank> ranks(m_);
    for (ArmRank& r : ranks) r.highest = static_cast<int>(m_);
    MaxT::Pairs all;
    for (size_t a = 0; a < m_; ++a)
      for (size_t b = a + 1; b < m_; ++b) all.emplace_back(a, b);
    const double bound = errors_.largest(all).bound(confidence_);
    for (const auto& [a, b] : all) {
      const double ahead = logs_[a].value - logs_[b].value, error = errors_.standard_error(a, b);
      const bool apart =
          error == 0 ? ahead != 0 : std::fabs(as_normal(ahead / error, dof_)) > bound;
      if (!apart) continue;
      ++ranks[ahead > 0 ? b : a].lowest;
      --ranks[ahead > 0 ? a : b].highest;
    }
    // The bound as a t of these degrees of freedom.
    const double t = base::student_t_quantile(base::normal_cdf(bound), dof_);
    for (size_t a = 0; a < m_; ++a) {
      ranks[a].log_ratio = logs_[a].value - logs_[fastest].value;
      const double half = t * errors_.standard_error(a, fastest);
      if (a != fastest)
        ranks[a].behind = base::Interval{ranks[a].log_ratio - half, ranks[a].log_ratio + half};
    }
    return ranks;
  }

 private:
  const std::vector<Jackknife>& logs_;
  size_t m_;
  double dof_, confidence_;
  MaxT errors_;
};

}  // namespace

std::optional<BestSet> best_set(std::span<const std::vector<TokensAndTime>> arms,
                                Estimator estimator, uint64_t seed, double confidence,
                                const Design& design) {
  EVALRUN_CHECK(confidence > 0 && confidence < 1, "confidence {}", confidence);
  if (arms.size() < 2) return std::nullopt;
  for (const auto& prompts : arms)
    EVALRUN_CHECK(prompts.size() == arms.front().size(), "arms of different prompts");
  const std::vector<size_t> places = decoded_by_all(arms);
  Design room;
  const Design& of_decoded = design.of(places, room);
  std::vector<Jackknife> logs;
  BestSet best{.fastest = 0,
               .member = {},
               .ranks = {},
               .n = static_cast<int>(places.size()),
               .n_eff = std::numeric_limits<double>::infinity()};
  double degrees = 0, dof = std::numeric_limits<double>::infinity();
  for (const auto& prompts : arms) {
    const Units units = units_of_arm(prompts, places, estimator, of_decoded);
    auto j = jackknife(units, estimator == Estimator::kGeo ? quotient : log_quotient);
    if (!j) return std::nullopt;
    logs.push_back(std::move(*j));
    const double n_eff = units.effective_count(1);
    degrees = units.most_degrees();
    dof = std::min(dof, units.degrees(n_eff));
    best.n_eff = std::min(best.n_eff, n_eff);
  }
  const Comparison comparison(logs, std::max(1.0, dof), std::max(1.0, degrees), seed, confidence);
  for (size_t a = 0; a < logs.size(); ++a) {
    if (logs[a].value > logs[best.fastest].value) best.fastest = a;
    best.member.push_back(comparison.may_be_fastest(a));
  }
  best.member[best.fastest] = true;
  best.ranks = comparison.ranks(best.fastest);
  return best;
}

}  // namespace evalrun::reports
