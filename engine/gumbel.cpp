// Draws by noise (the Gumbel-max trick), keyed so that all who draw for one position use the same
// noise. Target and drafter each draw from their own distribution; a draft token passes when the
// target draws the same one. So what is emitted depends on the target and the seed alone, never on
// the drafter: every method gives plain decoding's tokens (Daliri, Musco, Suresh 2024, "Coupling
// without communication and drafter-invariant speculative decoding", arXiv 2408.07978, section 4).
// Two distributions at a total variation of D agree with probability (1 - D) / (1 + D) or more.
//
// The noise is a race: token i arrives at time e_i / w_i, e_i ~ Exp(1), w_i its weight, and the
// first to arrive is drawn: with probability w_i / sum w. (ln w_i - ln e_i is its logit plus Gumbel
// noise.) Tokens come in blocks of 256 ids. In a block the least e_i is Exp(256), its place even,
// and the others come Exp(1) after it (memorylessness). So one number bounds what a block can do,
// and few blocks are looked at, as in A* sampling (Maddison, Tarlow, Minka 2014, arXiv 1411.0030).
// Noise belongs to a token id, whatever the width of the logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/noise_arith.h"
#include "engine/sampling.h"

namespace evalrun::engine {
namespace {

// The first k of a race so far, by speed: weight over arrival.
class Podium {
 public:
  Podium(int k, std::vector<double>& speeds, std::vector<int32_t>& outputs)
      : k_(static_cast<size_t>(k)), speeds_(speeds), outputs_(outputs) {
    speeds_.clear();
    outputs_.clear();
  }
  // Whether somebody of this speed may still get on it.
  bool open_to(double speed) const { return speed > 0 && (!full() || speed >= speeds_.back()); }
  double slowest() const { return full() ? speeds_.back() : 0; }
  // Of equal speeds the lower output is first.
  void arrives(int32_t output, double speed) {
    if (!open_to(speed)) return;
    size_t at = speeds_.size();
    while (at > 0 &&
           (speeds_[at - 1] < speed || (speeds_[at - 1] == speed && outputs_[at - 1] > output)))
      --at;
    if (at == k_) return;
    if (full()) speeds_.pop_back(), outputs_.pop_back();
    speeds_.insert(speeds_.begin() + static_cast<std::ptrdiff_t>(at), speed);
    outputs_.insert(outputs_.begin() + static_cast<std::ptrdiff_t>(at), output);
  }

 private:
  bool full() const { return speeds_.size() == k_; }
  size_t k_;
  std::vector<double>& speeds_;  // of outputs_, descending
  std::vector<int32_t>& outputs_;
};

size_t blocks_of(size_t n) { return (n + kNoiseBlock - 1) / kNoiseBlock; }
template <class T>
std::span<const T> block_of(std::span<const T> values, size_t block) {
  const size_t begin = block * kNoiseBlock;
  return values.subspan(begin, std::min<size_t>(kNoiseBlock, values.size() - begin));
}

// Tokens are their own ids. `bounds`: of each block the largest weight, which becomes the largest
// speed that any of its tokens can have; `weight(i)`. `may_weigh(least)(i)`: false only where a
// weight is below `least`; cheaper to ask.
template <class MayWeigh, class Weight>
void race(size_t n, const TokenNoise& noise, Podium& podium, std::vector<double>& bounds,
          std::vector<int32_t>& order, MayWeigh may_weigh, Weight weight) {
  order.clear();
  for (size_t b = 0; b < bounds.size(); ++b) {
    bounds[b] /= noise.first(static_cast<int>(b)).arrival;
    order.push_back(static_cast<int32_t>(b));
  }
  std::sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return bounds[static_cast<size_t>(x)] > bounds[static_cast<size_t>(y)];
  });
  for (const int32_t block : order) {
    const auto b = static_cast<size_t>(block);
    if (!podium.open_to(bounds[b])) break;
    const TokenNoise::First first = noise.first(block);
    const size_t end = std::min(n, (b + 1) * kNoiseBlock);
    const auto may = may_weigh(podium.slowest() * first.arrival);
    for (size_t i = b * kNoiseBlock; i < end; ++i) {
      if (!may(i)) continue;
      const double w = weight(i);
      if (!podium.open_to(w / first.arrival)) continue;
      const auto token = static_cast<int32_t>(i);
      podium.arrives(token, w / noise.arrival(token, first));
    }
  }
}

}  // namespace

void draw_by_noise(std::span<const float> logits, const SamplingParams& params, double uniform,
                   int k, std::span<const int32_t> ids, std::vector<int32_t>& outputs,
                   WarpScratch& scratch) {
  const size_t n = logits.size();
  EVALRUN_CHECK(k > 0 && uniform >= 0 && uniform < 1, "{} draws by {}", k, uniform);
  EVALRUN_CHECK(ids.empty() || ids.size() == n, "{} ids of {} logits", ids.size(), n);
  EVALRUN_CHECK(params.temperature > 0, "greedy decoding has no distribution");
  const TokenNoise noise(uniform);
  Podium podium(k, scratch.speeds, outputs);
  std::vector<double>& bounds = scratch.bounds;
  bounds.clear();
  const bool cut = params.top_p < 1 || (params.top_k > 0 && static_cast<size_t>(params.top_k) < n);
  if (!cut && ids.empty()) {  // then only the weights of a few blocks are computed
    float best = -std::numeric_limits<float>::infinity();
    for (size_t b = 0; b < blocks_of(n); ++b) {
      const float largest = largest_logit(block_of(logits, b));
      best = std::max(best, largest);
      bounds.push_back(largest);
    }
    check_finite_best(best);
    const double scale = inverse_temperature(params);
    const auto weight = [&](float logit) { return weight_of(logit, best, scale); };
    for (double& bound : bounds) bound = weight(static_cast<float>(bound));
    // Half a percent of a weight is far beyond the rounding of a logarithm.
    const auto may_weigh = [&](double least) {
      const double floor = static_cast<double>(best) + (std::log(least) - 0.005) / scale;
      return [logits, floor](size_t i) { return !(static_cast<double>(logits[i]) < floor); };
    };
    return race(n, noise, podium, bounds, scratch.order, may_weigh,
                [&](size_t i) { return weight(logits[i]); });
  }
  weigh(logits, params, scratch.weights, scratch);
  const std::span<const double> weights = scratch.weights;
  if (ids.empty()) {
    for (size_t b = 0; b < blocks_of(n); ++b) {
      const auto block = block_of(weights, b);
      bounds.push_back(*std::max_element(block.begin(), block.end()));
    }
    const auto always = [](double) { return [](size_t) { return true; }; };
    return race(n, noise, podium, bounds, scratch.order, always,
                [&](size_t i) { return weights[i]; });
  }
  // Blocks are those of the target's ids: here `bounds` are their first arrivals.
  for (size_t i = 0; i < n; ++i) {
    const auto b = static_cast<size_t>(ids[i] / kNoiseBlock);
    while (bounds.size() <= b)
      bounds.push_back(noise.first(static_cast<int>(bounds.size())).arrival);
    if (podium.open_to(weights[i] / bounds[b]))
      podium.arrives(static_cast<int32_t>(i), weights[i] / noise.arrival(ids[i]));
  }
}

}  // namespace evalrun::engine
