// Which arms may be the fastest: a confidence set, from the prompts that all of them decoded.
// docs/measurement.md says how it is made and how often it holds the truth.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reports/data/estimators.h"

namespace evalrun::reports {

// Decode tokens and decode time of one prompt; 0 tokens or 0 ns: nothing was decoded.
struct TokensAndTime {
  double tokens = 0, ns = 0;
};

// An arm beside all others, both with the confidence of the set for all arms at once.
struct ArmRank {
  // ln of its speed over the fastest arm's, with a simultaneous interval. Absent for that arm.
  std::optional<base::Interval> behind;
  double log_ratio = 0;
  int lowest = 1, highest = 1;  // its rank, 1 = fastest: a confidence set
};

struct BestSet {
  size_t fastest = 0;        // the arm of the largest estimate; always a member
  std::vector<bool> member;  // one per arm
  std::vector<ArmRank> ranks;
  int n = 0;         // prompts
  double n_eff = 0;  // of equal weight, the smallest over arms; n for all but kSum
};

// Holds the truly fastest arm with at least `confidence`. An arm is left out when some other arm is
// faster beyond the arm's own bound: one-sided tests against all others at once, paired by prompt
// (Hsu 1981, "Simultaneous confidence intervals for all distances from the best"; Mogstad, Romano,
// Shaikh, Wilhelm 2024, section 3). The estimate is the mean log speed for kGeo, and the log of the
// ratio of sums or of the mean speed else; its standard error is the jackknife's. Degrees of
// freedom are n_eff - 1, n_eff = 1 / sum of the squares of the prompts' shares of all time: few
// long answers count as few prompts. The bound is the quantile of the largest of correlated normal
// numbers, the correlations shrunk towards 0 by k / (k + n - 1) for k rivals, since those of few
// prompts are too good to be true.
//
// Ranks: arm a is ahead of arm b when their difference is beyond the bound of the largest absolute
// difference of all pairs (Mogstad et al., section 3.2); its rank lies between 1 + the number of
// arms ahead of it and the number of arms less those it is ahead of. Differences from the fastest
// arm have the same bound, since it is chosen by its figures. An arm that another one is ahead of
// is never a member. Here correlations are shrunk towards those of independent arms.
//
// arms[a][i]: arm a on prompt i. All arms have the same prompts. Prompts in which an arm decoded
// nothing are left out. nullopt for fewer than two arms or two units.
// With a design, its units stand for prompts above, and its number of strata for the 1 that is
// taken from n and n_eff.
std::optional<BestSet> best_set(std::span<const std::vector<TokensAndTime>> arms,
                                Estimator estimator, uint64_t seed, double confidence = 0.95,
                                const Design& design = {});

}  // namespace evalrun::reports
