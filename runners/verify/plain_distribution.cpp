#include "runners/verify/plain_distribution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/base/error.h"
#include "engine/noise_arith.h"
#include "engine/sampling_arith.h"

namespace evalrun::runners {
namespace {

float kth_largest(std::span<const float> logits, size_t k) {
  std::vector<float> sorted(logits.begin(), logits.end());
  const auto kth = sorted.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
  return *kth;
}

// `dist` holds weights, `all` is their sum.
void cut_top_p(std::span<const float> logits, double top_p, long double all,
               PlainDistribution& dist) {
  std::vector<double>& weight = dist.prob;
  const size_t n = weight.size();
  // Tokens below this have half of what is cut at most, all together: they need not be sorted.
  const auto least = static_cast<double>(all) * (1 - top_p) / (2 * static_cast<double>(n));
  std::vector<size_t> order;  // likeliest first, lowest id first on ties
  for (size_t i = 0; i < n; ++i) {
    if (weight[i] > least)
      order.push_back(i);
    else
      weight[i] = 0;
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  const long double wanted = static_cast<long double>(top_p) * all;
  const auto slack = static_cast<long double>(mass_slack(n));  // the best token weighs 1
  long double reached = 0;
  for (const size_t i : order) {
    if (reached >= wanted * (1 - 1e-12L)) {
      weight[i] = 0;
    } else {
      reached += static_cast<long double>(weight[i]);
      dist.border |= std::abs(reached - wanted) <= slack;
    }
  }
}

}  // namespace

double mass_slack(size_t tokens) { return static_cast<double>(tokens + 1) * engine::kMassUnit; }

PlainDistribution plain_distribution(std::span<const float> logits,
                                     const engine::SamplingParams& sampling) {
  EVALRUN_CHECK(sampling.temperature > 0 && !logits.empty(), "nothing to draw from");
  const size_t n = logits.size();
  const double best = *std::max_element(logits.begin(), logits.end());
  PlainDistribution dist;
  std::vector<double>& weight = dist.prob;
  weight.resize(n);
  for (size_t i = 0; i < n; ++i)
    weight[i] = std::exp((static_cast<double>(logits[i]) - best) / sampling.temperature);
  const auto k = static_cast<size_t>(sampling.top_k);
  if (k > 0 && k < n) {
    const float least = kth_largest(logits, k);
    for (size_t i = 0; i < n; ++i)
      if (logits[i] < least) weight[i] = 0;
  }
  const auto sum = [&] { return std::accumulate(weight.begin(), weight.end(), 0.0L); };
  if (sampling.top_p < 1) cut_top_p(logits, sampling.top_p, sum(), dist);
  const long double all = sum();
  for (double& w : weight) w = static_cast<double>(w / all);
  return dist;
}

PlainDraw draw_by_inverse(std::span<const double> prob, double uniform, double slack) {
  const long double all = std::accumulate(prob.begin(), prob.end(), 0.0L);
  const long double place = static_cast<long double>(uniform) * all;
  const long double around = static_cast<long double>(slack) * all;
  PlainDraw draw;
  long double before = 0;
  int32_t last = -1;  // of the tokens so far that have a probability
  for (size_t i = 0; i < prob.size(); ++i) {
    if (!(prob[i] > 0)) continue;
    const long double after = before + static_cast<long double>(prob[i]);
    const auto token = static_cast<int32_t>(i);
    if (draw.token >= 0) {  // the next one, where the drawn one's end is near
      if (before - place <= around) draw.near = token;
      break;
    }
    if (after > place) {
      draw.token = token;
      if (place - before <= around) draw.near = last;
    }
    before = after;
    last = token;
  }
  if (draw.token < 0) draw.token = last;
  return draw;
}

PlainDraw draw_by_race(std::span<const double> prob, double uniform) {
  constexpr double kRounding = 1e-11;
  const engine::TokenNoise noise(uniform);
  PlainDraw draw;
  double first = -1, second = -1;
  for (size_t i = 0; i < prob.size(); ++i) {
    if (!(prob[i] > 0)) continue;
    const auto token = static_cast<int32_t>(i);
    const double speed = prob[i] / noise.arrival(token);
    if (speed > first) {
      second = first;
      draw.near = draw.token;
      first = speed;
      draw.token = token;
    } else if (speed > second) {
      second = speed;
      draw.near = token;
    }
  }
  if (second < first * (1 - kRounding)) draw.near = -1;
  return draw;
}

}  // namespace evalrun::runners
