// Speedup estimators over paired prompts (docs/measurement.md): ratio of sums, geometric mean and
// the ratio of mean speeds that others publish, with t intervals. What these are for, new prompts
// of the same kinds, say, is a Design's: units count, which are the prompts where it is empty.
// reports/data/bootstrap.h resamples instead, reports/data/sessions.h takes several
// processes.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/design.h"

namespace evalrun::reports {

// kLegacy and kLegacyDecode are one formula over other tokens and times (PairColumns::headline(),
// pair_columns.h).
enum class Estimator { kSum, kGeo, kLegacy, kLegacyDecode };
const char* to_string(Estimator e);  // "sum", "geo", "legacy", "legacy-decode"

// One prompt, both arms: decode tokens (N - 1 per turn) and decode time in nanoseconds.
struct PromptPair {
  double base_tokens = 0, base_ns = 0, tokens = 0, ns = 0;
  double base_fastest_ns = 0, fastest_ns = 0;  // of the fastest repeats instead
};

struct Estimate {
  double value = 0;
  std::optional<base::Interval> interval;  // absent for fewer than two units
  int n = 0;                               // prompts used
  // As many units of equal weight would say as much: few long answers count as few prompts. For the
  // geometric mean all prompts have one weight.
  double n_eff = 0;
};

// (sum tokens / sum ns) / (sum base_tokens / sum base_ns). Interval of its log: the jackknife's
// standard error and Student's t. Degrees of freedom are the smaller of Units::degrees of n_eff,
// n_eff = 1 / sum of the squares of the units' shares of an arm's time (the smaller one
// over both arms), and what the kurtosis of the units' influences leaves (Jackknife::kurtosis_dof);
// 1 at least. No interval where one unit has all tokens of an arm. nullopt when a total is zero.
std::optional<Estimate> speedup_sum(std::span<const PromptPair> pairs, const Design& design = {},
                                    double confidence = 0.95);

// exp(mean of ln s_i) with the t interval of the logs; prompts with a zero in either arm (nothing
// decoded) have no ratio and are left out.
std::optional<Estimate> speedup_geo(std::span<const PromptPair> pairs, const Design& design = {},
                                    double confidence = 0.95);

// Why the ratio of sums is not the geometric mean: ln S - ln G = by_length + by_spread. With H the
// harmonic mean of the prompts' speedups, by_length = ln S / H is below 0 where long answers gain
// less, and by_spread = ln H / G is 0 or less: slow prompts take more of the time. Prompts with a
// zero in either arm are left out.
struct EstimatorGap {
  double by_length = 0, by_spread = 0;
};
std::optional<EstimatorGap> gap_of_estimators(std::span<const PromptPair> pairs);

// mean(tokens / ns) / mean(base_tokens / base_ns), the means over prompts: the convention of
// Spec-Bench (evaluation/speed.py) and EAGLE, for comparison with their tables and nothing else:
// long and short answers count alike, so it is no job's speedup. Interval as above, with speeds for
// tokens and times. Left out are the prompts that speed_terms() leaves out.
std::optional<Estimate> speedup_legacy(std::span<const PromptPair> pairs,
                                       Estimator estimator = Estimator::kLegacyDecode,
                                       const Design& design = {}, double confidence = 0.95);

std::optional<Estimate> speedup(std::span<const PromptPair> pairs, Estimator estimator,
                                const Design& design = {}, double confidence = 0.95);

// Its value alone, without the work that intervals take.
std::optional<double> speedup_value(std::span<const PromptPair> pairs, Estimator estimator);

// One prompt's share in a ratio of two sums, such as emitted tokens and steps of tau.
struct RatioTerm {
  double numerator = 0, denominator = 0;
};
// sum numerator / sum denominator with the interval of speedup_sum (no baseline: its terms vanish).
std::optional<Estimate> ratio_of_sums(std::span<const RatioTerm> terms, const Design& design = {},
                                      double confidence = 0.95);

// Prompts that decoded something in both arms.
std::vector<size_t> places_with_speeds(std::span<const PromptPair> pairs);
// The speeds of each prompt, the method's and the baseline's, with the prompts' places. kLegacy has
// those that took time in both arms: an answer without tokens has speed 0, as in the script.
// kLegacyDecode has those that decoded something in both.
struct SpeedTerms {
  std::vector<RatioTerm> terms;
  std::vector<size_t> places;
};
SpeedTerms speed_terms(std::span<const PromptPair> pairs, Estimator estimator);
// ln of the per-prompt ratios, prompts with zeros left out.
std::vector<double> log_ratios(std::span<const PromptPair> pairs);
// The same with the fastest repeat of either arm: what compares a prompt with itself, measured
// again. The work of its repeats is equal to the bit, and what disturbs a measurement only ever
// adds time.
std::vector<double> fastest_log_ratios(std::span<const PromptPair> pairs);

// ln of the speedup, [session][prompt]; the same prompts in the same order in every session.
using SessionLogs = std::vector<std::vector<double>>;

}  // namespace evalrun::reports
