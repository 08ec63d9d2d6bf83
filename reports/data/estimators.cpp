#include "reports/data/estimators.h"

#include <cmath>

#include "engine/base/error.h"

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
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(e));
}

const char* to_string(Scope s) { return s == Scope::kPopulation ? "population" : "fixed-set"; }

std::optional<Estimate> speedup_sum(std::span<const PromptPair> pairs, double confidence) {
  double base_tokens = 0, base_ns = 0, tokens = 0, ns = 0;
  for (const PromptPair& p : pairs) {
    base_tokens += p.base_tokens, base_ns += p.base_ns;
    tokens += p.tokens, ns += p.ns;
  }
  if (base_tokens <= 0 || base_ns <= 0 || tokens <= 0 || ns <= 0) return std::nullopt;
  Estimate e;
  e.value = (tokens / ns) / (base_tokens / base_ns);
  e.n = static_cast<int>(pairs.size());
  if (e.n < 2) return e;
  double sum_of_squares = 0;
  for (const PromptPair& p : pairs) {
    const double u =
        p.tokens / tokens - p.ns / ns - p.base_tokens / base_tokens + p.base_ns / base_ns;
    sum_of_squares += u * u;
  }
  const double standard_error = std::sqrt(e.n / (e.n - 1.0) * sum_of_squares);
  const double half = base::student_t_quantile((1 + confidence) / 2, e.n - 1) * standard_error;
  e.interval = base::Interval{e.value * std::exp(-half), e.value * std::exp(half)};
  return e;
}

std::optional<Estimate> ratio_of_sums(std::span<const RatioTerm> terms, double confidence) {
  std::vector<PromptPair> pairs;
  for (const RatioTerm& t : terms)
    pairs.push_back({.base_tokens = 1, .base_ns = 1, .tokens = t.numerator, .ns = t.denominator});
  return speedup_sum(pairs, confidence);
}

std::vector<RatioTerm> speed_terms(std::span<const PromptPair> pairs) {
  std::vector<RatioTerm> terms;
  for (const PromptPair& p : pairs)
    if (has_speeds(p)) terms.push_back({p.tokens / p.ns, p.base_tokens / p.base_ns});
  return terms;
}

std::vector<double> log_ratios(std::span<const PromptPair> pairs) {
  std::vector<double> logs;
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

std::optional<Estimate> speedup_geo(std::span<const PromptPair> pairs, double confidence) {
  const std::vector<double> logs = log_ratios(pairs);
  if (logs.empty()) return std::nullopt;
  Estimate e;
  e.value = std::exp(base::mean(logs));
  e.n = static_cast<int>(logs.size());
  if (const auto t = base::t_interval(logs, confidence))
    e.interval = base::Interval{std::exp(t->interval.lo), std::exp(t->interval.hi)};
  return e;
}

// Over the same prompts a ratio of means is a ratio of sums.
std::optional<Estimate> speedup_legacy(std::span<const PromptPair> pairs, double confidence) {
  return ratio_of_sums(speed_terms(pairs), confidence);
}

std::optional<Estimate> speedup(std::span<const PromptPair> pairs, Estimator estimator,
                                double confidence) {
  switch (estimator) {
    case Estimator::kSum:
      return speedup_sum(pairs, confidence);
    case Estimator::kGeo:
      return speedup_geo(pairs, confidence);
    case Estimator::kLegacy:
      return speedup_legacy(pairs, confidence);
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
}

}  // namespace evalrun::reports
