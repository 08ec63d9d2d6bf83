#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

// Independent lanes, so that the compiler may use vector registers without reassociating a sum.
constexpr size_t kLanes = 16;

[[noreturn]] void bad_logits(const char* what) {
  throw base::data_error(
      "logits", "", what,
      "the weights may be damaged, or the model overflows in this number format");
}

// Largest logit; throws for NaN.
float max_logit(std::span<const float> logits) {
  EVALRUN_CHECK(!logits.empty(), "no logits");
  float best[kLanes];
  bool nan[kLanes] = {};
  std::fill(best, best + kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) {
      const float x = logits[i + j];
      best[j] = x > best[j] ? x : best[j];
      nan[j] |= x != x;
    }
  for (; i < logits.size(); ++i) {
    best[0] = std::max(best[0], logits[i]);
    nan[0] |= logits[i] != logits[i];
  }
  if (std::any_of(nan, nan + kLanes, [](bool b) { return b; }))
    bad_logits("the model computed NaN");
  return *std::max_element(best, best + kLanes);
}

// Whether a stands before b in the one order used everywhere: larger logit, then lower id.
struct Before {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  }
};

// Leaves the k best ids in `heap`, the worst of them in front. Ids come in ascending order, so an
// equal logit never displaces one that is already in.
void select_best(std::span<const float> logits, size_t k, std::vector<int32_t>& heap) {
  const Before before{logits};
  heap.clear();
  const size_t n = logits.size();
  for (size_t i = 0; i < std::min(k, n); ++i) heap.push_back(static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), before);
  float worst = logits[static_cast<size_t>(heap.front())];
  for (size_t i = heap.size(); i < n; ++i) {
    if (!(logits[i] > worst)) continue;
    std::pop_heap(heap.begin(), heap.end(), before);
    heap.back() = static_cast<int32_t>(i);
    std::push_heap(heap.begin(), heap.end(), before);
    worst = logits[static_cast<size_t>(heap.front())];
  }
}

double sum_of(std::span<const double> values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum;
}

// Zeroes everything behind the smallest set (best first) whose mass reaches top_p of `sum`.
void keep_nucleus(std::span<const float> logits, double top_p, double sum,
                  std::vector<double>& prob, std::vector<int32_t>& order) {
  // All tokens below (1 - top_p) / V hold less than 1 - top_p together, so none of them can be in
  // the set; half of that leaves room for rounding.
  const double floor = 0.5 * (1.0 - top_p) * sum / static_cast<double>(prob.size());
  order.clear();
  for (size_t i = 0; i < prob.size(); ++i)
    if (prob[i] > 0 && prob[i] >= floor) order.push_back(static_cast<int32_t>(i));
  const Before before{logits};
  const auto after = [&before](int32_t a, int32_t b) { return before(b, a); };
  std::make_heap(order.begin(), order.end(), after);
  double mass = 0;
  int32_t border = order.front();
  for (auto end = order.end(); end != order.begin() && mass < top_p * sum; --end) {
    std::pop_heap(order.begin(), end, after);
    border = *(end - 1);
    mass += prob[static_cast<size_t>(border)];
  }
  for (size_t i = 0; i < prob.size(); ++i)
    if (before(border, static_cast<int32_t>(i))) prob[i] = 0;
}

}  // namespace

void validate(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0)
    throw base::usage_error(
        fmt::format("temperature must be a number >= 0, found {}", params.temperature),
        "0 is greedy decoding");
  if (params.top_k < 0)
    throw base::usage_error(fmt::format("top_k must be >= 0, found {}", params.top_k), "0 is off");
  if (!(params.top_p > 0 && params.top_p <= 1))
    throw base::usage_error(fmt::format("top_p must be in (0, 1], found {}", params.top_p),
                            "1 is off");
}

int32_t argmax(std::span<const float> logits) {
  const float best = max_logit(logits);
  size_t i = 0;
  while (logits[i] != best) ++i;
  return static_cast<int32_t>(i);
}

std::vector<TokenLogit> top_k(std::span<const float> logits, int k) {
  EVALRUN_CHECK(k > 0, "k = {}", k);
  max_logit(logits);  // for its NaN check
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(k));
  select_best(logits, static_cast<size_t>(k), ids);
  std::sort(ids.begin(), ids.end(), Before{logits});
  std::vector<TokenLogit> best;
  best.reserve(ids.size());
  for (int32_t id : ids) best.push_back({id, logits[static_cast<size_t>(id)]});
  return best;
}

void warp(std::span<const float> logits, const SamplingParams& params, std::vector<double>& prob,
          WarpScratch& scratch) {
  EVALRUN_CHECK(params.temperature > 0, "greedy decoding has no distribution");
  const size_t n = logits.size();
  prob.resize(n);
  scratch.order.reserve(n);
  const float best = max_logit(logits);
  if (!std::isfinite(best)) bad_logits("no finite logit, or an infinite one");

  float lowest = -std::numeric_limits<float>::infinity();
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < n) {
    select_best(logits, static_cast<size_t>(params.top_k), scratch.order);
    lowest = logits[static_cast<size_t>(scratch.order.front())];
  }
  const double shift = best;
  for (size_t i = 0; i < n; ++i)
    prob[i] = logits[i] >= lowest ? std::exp((logits[i] - shift) / params.temperature) : 0.0;
  double sum = sum_of(prob);
  if (params.top_p < 1) {
    keep_nucleus(logits, params.top_p, sum, prob, scratch.order);
    sum = sum_of(prob);
  }
  for (double& p : prob) p /= sum;
}

int32_t draw(std::span<const double> prob, base::Rng& rng) {
  const double sum = sum_of(prob);
  EVALRUN_CHECK(sum > 0 && std::isfinite(sum), "cannot draw from a sum of {}", sum);
  const double u = rng.uniform() * sum;
  double below = 0;
  size_t last = 0;  // rounding can leave u at the very end: then the last possible token
  for (size_t i = 0; i < prob.size(); ++i) {
    if (prob[i] <= 0) continue;
    below += prob[i];
    last = i;
    if (u < below) break;
  }
  return static_cast<int32_t>(last);
}

}  // namespace evalrun::engine
