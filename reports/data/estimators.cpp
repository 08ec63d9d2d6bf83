#include "reports/data/estimators.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "engine/base/error.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {

namespace {

// Nothing decoded in an arm: no speed.
bool has_speeds(const PromptPair& p) {
  return p.base_tokens > 0 && p.base_ns > 0 && p.tokens > 0 && p.ns > 0;
}

}  // namespace

const char* to_string(Estimator e) {
  switch (e) {
    case Estimator::kSum:
      return "sum";
    case Estimator::kGeo:
      return "geo";
    case Estimator::kLegacy:
      return "legacy";
    case Estimator::kLegacyDecode:
      return "legacy-decode";
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(e));
}

namespace {

// What goes into a ratio of sums: prompts without any of it left out.
struct SummedPrompts {
  std::vector<Sums> prompts;
  std::vector<size_t> places;
  Sums all = {};
  explicit SummedPrompts(size_t most) { prompts.reserve(most), places.reserve(most); }
  void add(size_t place, const Sums& sums) {
    prompts.push_back(sums);
    places.push_back(place);
    for (size_t k = 0; k < all.size(); ++k) all[k] += sums[k];
  }
  // nullopt when a total is zero.
  std::optional<double> ratio() const {
    if (std::any_of(all.begin(), all.end(), [](double sum) { return sum <= 0; }))
      return std::nullopt;
    return (all[0] / all[1]) / (all[2] / all[3]);
  }
};

SummedPrompts summed(std::span<const PromptPair> pairs) {
  SummedPrompts s(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const PromptPair& p = pairs[i];
    const Sums sums = {p.tokens, p.ns, p.base_tokens, p.base_ns};
    if (sums != Sums{}) s.add(i, sums);  // else nothing was decoded: it is in no sum
  }
  return s;
}

// A baseline of 1 for every prompt, whose terms vanish.
SummedPrompts summed(std::span<const RatioTerm> terms) {
  SummedPrompts s(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    const RatioTerm& t = terms[i];
    if (t.numerator != 0 || t.denominator != 0) s.add(i, {t.numerator, t.denominator, 1, 1});
  }
  return s;
}

// `log_of`: log_ratio, or log_quotient where the last two sums are equal.
std::optional<Estimate> ratio_estimate(SummedPrompts s, const Design& design, Statistic log_of,
                                       double confidence) {
  const std::optional<double> ratio = s.ratio();
  if (!ratio) return std::nullopt;
  Estimate e;
  e.value = *ratio;
  e.n = static_cast<int>(s.prompts.size());
  Design room;
  const Units units = units_of(std::move(s.prompts), design.of(s.places, room));
  e.n_eff = std::min(units.effective_count(1), units.effective_count(3));
  if (const auto j = jackknife(units, log_of)) {
    const base::Interval logs =
        student_interval(*j, std::min(units.degrees(e.n_eff), j->kurtosis_dof()), confidence);
    e.interval = base::Interval{std::exp(logs.lo), std::exp(logs.hi)};
  }
  return e;
}

}  // namespace

std::optional<Estimate> speedup_sum(std::span<const PromptPair> pairs, const Design& design,
                                    double confidence) {
  return ratio_estimate(summed(pairs), design, log_ratio, confidence);
}

std::optional<Estimate> ratio_of_sums(std::span<const RatioTerm> terms, const Design& design,
                                      double confidence) {
  return ratio_estimate(summed(terms), design, log_quotient, confidence);
}

std::vector<size_t> places_with_speeds(std::span<const PromptPair> pairs) {
  std::vector<size_t> places;
  places.reserve(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i)
    if (has_speeds(pairs[i])) places.push_back(i);
  return places;
}

SpeedTerms speed_terms(std::span<const PromptPair> pairs, Estimator estimator) {
  SpeedTerms speeds;
  speeds.terms.reserve(pairs.size()), speeds.places.reserve(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const PromptPair& p = pairs[i];
    if (estimator == Estimator::kLegacy ? p.ns <= 0 || p.base_ns <= 0 : !has_speeds(p)) continue;
    speeds.terms.push_back({p.tokens / p.ns, p.base_tokens / p.base_ns});
    speeds.places.push_back(i);
  }
  return speeds;
}

std::vector<double> log_ratios(std::span<const PromptPair> pairs) {
  std::vector<double> logs;
  logs.reserve(pairs.size());
  for (const PromptPair& p : pairs)
    if (has_speeds(p))
      logs.push_back(std::log(p.tokens / p.ns) - std::log(p.base_tokens / p.base_ns));
  return logs;
}

std::vector<double> fastest_log_ratios(std::span<const PromptPair> pairs) {
  std::vector<PromptPair> fastest(pairs.begin(), pairs.end());
  for (PromptPair& p : fastest) p.base_ns = p.base_fastest_ns, p.ns = p.fastest_ns;
  return log_ratios(fastest);
}

std::optional<Estimate> speedup_geo(std::span<const PromptPair> pairs, const Design& design,
                                    double confidence) {
  const std::vector<double> logs = log_ratios(pairs);
  if (logs.empty()) return std::nullopt;
  Estimate e;
  e.value = std::exp(base::mean(logs));
  e.n = static_cast<int>(logs.size());
  e.n_eff = e.n;
  Design room;
  const Design& of_logs = design.of(places_with_speeds(pairs), room);
  std::optional<base::Interval> interval;
  if (of_logs.empty()) {
    if (const auto t = base::t_interval(logs, confidence)) interval = t->interval;
  } else if (const auto mean = mean_interval(logs, of_logs, confidence)) {
    interval = mean->interval;
    e.n_eff = mean->n_eff;
  } else {
    e.n_eff = 1;
  }
  if (interval) e.interval = base::Interval{std::exp(interval->lo), std::exp(interval->hi)};
  return e;
}

std::optional<EstimatorGap> gap_of_estimators(std::span<const PromptPair> pairs) {
  const std::vector<double> logs = log_ratios(pairs);
  if (logs.empty()) return std::nullopt;
  std::vector<PromptPair> decoded;
  std::copy_if(pairs.begin(), pairs.end(), std::back_inserter(decoded), has_speeds);
  std::vector<double> inverse;
  for (const double log : logs) inverse.push_back(std::exp(-log));
  const double harmonic = -std::log(base::mean(inverse));
  return EstimatorGap{.by_length = std::log(*speedup_value(decoded, Estimator::kSum)) - harmonic,
                      .by_spread = harmonic - base::mean(logs)};
}

// Over the same prompts a ratio of means is a ratio of sums.
std::optional<Estimate> speedup_legacy(std::span<const PromptPair> pairs, Estimator estimator,
                                       const Design& design, double confidence) {
  const SpeedTerms speeds = speed_terms(pairs, estimator);
  Design room;
  return ratio_of_sums(speeds.terms, design.of(speeds.places, room), confidence);
}

std::optional<Estimate> speedup(std::span<const PromptPair> pairs, Estimator estimator,
                                const Design& design, double confidence) {
  switch (estimator) {
    case Estimator::kSum:
      return speedup_sum(pairs, design, confidence);
    case Estimator::kGeo:
      return speedup_geo(pairs, design, confidence);
    case Estimator::kLegacy:
    case Estimator::kLegacyDecode:
      return speedup_legacy(pairs, estimator, design, confidence);
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
}

std::optional<double> speedup_value(std::span<const PromptPair> pairs, Estimator estimator) {
  switch (estimator) {
    case Estimator::kSum:
      return summed(pairs).ratio();
    case Estimator::kGeo: {
      const std::vector<double> logs = log_ratios(pairs);
      return logs.empty() ? std::nullopt : std::optional(std::exp(base::mean(logs)));
    }
    case Estimator::kLegacy:
    case Estimator::kLegacyDecode:
      return summed(speed_terms(pairs, estimator).terms).ratio();
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
}

}  // namespace evalrun::reports
