#include "runners/verify/endpoints/endpoint_law.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace evalrun::runners {
namespace {

constexpr double kMostSlope = 1 / kLeastTemperature;

// How many of the best are left, and whether that is certain.
struct Kept {
  size_t n = 0;
  bool closed = false;   // nothing but candidates is left
  bool certain = false;  // no border lies within the noise
};

Kept kept_by_top_k(const TokenCandidates& c, int top_k, double noise) {
  const size_t listed = c.ids.size();
  const auto k = static_cast<size_t>(top_k);
  if (top_k == 0 || k > listed) return {listed, false, true};
  if (k == listed) return {listed, true, true};  // how likely the next one is cannot be seen
  return {k, true, c.log_probs[k - 1] - c.log_probs[k] > noise};
}

std::vector<double> tempered(const TokenCandidates& c, size_t n, double slope) {
  std::vector<double> weight(n);
  for (size_t i = 0; i < n; ++i) weight[i] = std::exp(slope * (c.log_probs[i] - c.log_probs[0]));
  return weight;
}

double total(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// What top-p leaves of `kept` candidates whose weights are `weight`; `all`: of all tokens.
Kept kept_by_mass(std::span<const double> weight, double all, Kept kept, double top_p,
                  double noise) {
  double sum = 0;
  for (size_t n = 0; n < kept.n; ++n) {
    const double before = sum;
    sum += weight[n] / all;
    if (sum < top_p) continue;
    // The set changes where the border moves past the sum before or after the last token.
    const double margin = std::max(noise, 1e-6);
    const bool last = kept.closed && n + 1 == kept.n;
    const bool clear = (last || sum - top_p > margin) && top_p - before > margin;
    return {n + 1, true, kept.certain && clear};
  }
  return kept;  // the border is not among the candidates
}

// nullopt where it depends on tokens that are not listed.
std::optional<Kept> kept_by_top_p(const TokenCandidates& c, const Kept& by_k, double slope,
                                  double top_p, double noise) {
  const std::vector<double> weight = tempered(c, by_k.n, slope);
  double least = total(weight), most = least;
  if (!by_k.closed) {
    // The others' probabilities add up to `hidden`, and none is above the last candidate's.
    const double best = std::exp(c.log_probs[0]);
    const double hidden = std::max(0.0, 1 - total(tempered(c, by_k.n, 1)) * best) / best;
    const double at_border = std::exp((slope - 1) * (c.log_probs.back() - c.log_probs[0]));
    if (slope < 1) return std::nullopt;
    most += hidden * at_border;
    if (slope == 1) least = most;
  }
  const Kept a = kept_by_mass(weight, least, by_k, top_p, noise);
  const Kept b = kept_by_mass(weight, most, by_k, top_p, noise);
  if (a.n != b.n || a.closed != b.closed) return std::nullopt;
  return Kept{a.n, a.closed, a.certain && b.certain};
}

}  // namespace

TokenCandidates candidates_of(std::span<const EndpointLogProb> list) {
  std::vector<EndpointLogProb> sorted;
  for (const EndpointLogProb& entry : list) {
    if (entry.token < 0 || !std::isfinite(entry.log_prob) || entry.log_prob > 1e-3) continue;
    const bool known = std::any_of(sorted.begin(), sorted.end(), [&](const EndpointLogProb& e) {
      return e.token == entry.token;
    });
    if (!known) sorted.push_back(entry);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.log_prob > b.log_prob; });
  TokenCandidates candidates;
  for (const EndpointLogProb& entry : sorted) {
    candidates.ids.push_back(entry.token);
    candidates.log_probs.push_back(std::min(entry.log_prob, 0.0));
  }
  return candidates;
}

std::optional<TokenLaw> token_law(const TokenCandidates& candidates,
                                  const engine::SamplingParams& sampling, CutOrder order,
                                  double noise) {
  if (candidates.ids.empty()) return std::nullopt;
  const double slope = 1 / sampling.temperature;
  Kept kept = kept_by_top_k(candidates, sampling.top_k, noise);
  bool hidden_cut = sampling.top_k > 0 && !kept.closed;  // by a top-k beyond the list
  if (sampling.top_p < 1) {
    if (hidden_cut) return std::nullopt;  // of what top-p takes its share is not known
    const auto by_p = kept_by_top_p(candidates, kept, order == CutOrder::kCutFirst ? 1 : slope,
                                    sampling.top_p, noise);
    if (!by_p) return std::nullopt;
    kept = *by_p;
    hidden_cut = !kept.closed;
  }
  if (!kept.certain) return std::nullopt;
  TokenLaw law;
  law.closed = kept.closed;
  law.prob = tempered(candidates, kept.n, slope);
  const double sum = total(law.prob);
  for (double& p : law.prob) p /= sum;
  law.prob.resize(candidates.ids.size());
  if (law.closed) {
    law.rest = kLeastRest;
  } else if (slope == 1 && !hidden_cut) {
    law.rest = std::max(kLeastRest, 1 - sum * std::exp(candidates.log_probs[0]));
  }
  if (law.rest)
    for (double& p : law.prob) p *= 1 - *law.rest;
  if (!law.rest && kept.n < 2) return std::nullopt;
  return law;
}

int64_t TokenCounts::all() const { return std::accumulate(of.begin(), of.end(), others); }

std::optional<LawTest> test_counts(const TokenLaw& law, const TokenCounts& counts, uint64_t seed,
                                   int simulations) {
  std::vector<double> dist = law.prob;
  std::vector<int64_t> seen = counts.of;
  if (law.rest) {
    dist.push_back(*law.rest);
    seen.push_back(counts.others);
    // What is cut is no token of probability 0, but one more of the rest.
    for (size_t i = 0; i < law.prob.size(); ++i)
      if (law.prob[i] == 0) seen.back() += std::exchange(seen[i], 0);
  }
  const int64_t draws = std::accumulate(seen.begin(), seen.end(), int64_t{0});
  if (draws == 0) return std::nullopt;
  base::GoodnessOfFit fit(dist, draws);
  const double p = fit.p(seen, seed, simulations);
  return LawTest{std::move(fit), p};
}

std::optional<SeenTemperature> seen_temperature(std::span<const LawPlaceView> places) {
  // The derivative of the log-likelihood by the slope: what was drawn less what is expected; and
  // the information, which is the variance of the log-probability.
  struct Score {
    double value = 0, information = 0;
  };
  const auto score = [&](double slope) {
    Score s;
    for (const LawPlaceView& place : places) {
      double weights = 0, mean = 0, square = 0, drawn = 0, n = 0;
      for (size_t i = 0; i < place.law->prob.size(); ++i) {
        if (place.law->prob[i] == 0) continue;
        const double off = place.candidates->log_probs[i] - place.candidates->log_probs[0];
        const double w = std::exp(slope * off);
        weights += w, mean += w * off, square += w * off * off;
        const auto count = static_cast<double>(place.counts->of[i]);
        n += count, drawn += count * off;
      }
      if (weights == 0) continue;
      mean /= weights;
      s.value += drawn - n * mean;
      s.information += n * (square / weights - mean * mean);
    }
    return s;
  };
  if (score(1).information < 1) return std::nullopt;
  double low = 1 / 100.0, high = kMostSlope;
  if (score(high).value >= 0) return SeenTemperature{0, {0, kLeastTemperature}};
  if (score(low).value <= 0) return std::nullopt;  // flatter than any temperature
  for (int i = 0; i < 60; ++i) {
    const double middle = std::sqrt(low * high);
    (score(middle).value > 0 ? low : high) = middle;
  }
  const double slope = std::sqrt(low * high);
  const double error = 1.96 / std::sqrt(std::max(score(slope).information, 1e-9));
  return SeenTemperature{1 / slope,
                         {1 / (slope + error), 1 / std::max(slope - error, 1 / kMostSlope)}};
}

}  // namespace evalrun::runners
