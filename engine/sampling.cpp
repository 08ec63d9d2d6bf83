// What sampling costs a step is memory and exp: a distribution over 49,152 tokens is 393 KB. So
// there is an exp of our own that the compiler vectorises. Sums run in independent lanes. Selection
// takes the place of sorting: for top-k candidates above a running threshold, for top-p buckets of
// mass.
//
// Masses that decide a top-p set are integers, so that the set depends on the distribution and not
// on the order of additions: selection, sorting and any vector width give the same set, ties
// included.
#include "engine/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/error.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine {
namespace {

// Independent lanes, so that the compiler may use vector registers without reassociating a sum.
constexpr size_t kLanes = 16;
constexpr size_t kBlock = 256;  // tokens worked on at once: 2 KB of float64

[[noreturn]] void bad_logits(const char* what) {
  throw base::data_error(
      "logits", "", what,
      "the weights may be damaged, or the model overflows in this number format");
}

// Four floats: a register of every 64-bit machine. Loops over few lanes with a comparison inside
// are not vectorised by themselves.
typedef float Quad __attribute__((vector_size(16)));
typedef int32_t QuadMask __attribute__((vector_size(16)));
constexpr size_t kQuads = kLanes / 4;

inline Quad quad_at(const float* p) {
  Quad q;
  std::memcpy(&q, p, sizeof(q));
  return q;
}

bool any(const QuadMask& mask) {
  uint64_t half[2];
  std::memcpy(half, &mask, sizeof(half));
  return (half[0] | half[1]) != 0;
}

// A largest logit and the first block of kArgmaxBlock it stands in; throws for NaN.
constexpr size_t kArgmaxBlock = 1024;
struct Largest {
  float logit;
  size_t block;  // first id of the block
};
Largest find_largest(std::span<const float> logits) {
  EVALRUN_CHECK(!logits.empty(), "no logits");
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Largest largest{kLowest, 0};
  QuadMask nan[kQuads] = {};
  bool odd_nan = false;  // after the last full set of lanes
  for (size_t begin = 0; begin < logits.size(); begin += kArgmaxBlock) {
    const size_t end = std::min(begin + kArgmaxBlock, logits.size());
    Quad best[kQuads];
    for (Quad& q : best) q = Quad{kLowest, kLowest, kLowest, kLowest};
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (size_t j = 0; j < kQuads; ++j) {
        const Quad x = quad_at(&logits[i + 4 * j]);
        best[j] = x > best[j] ? x : best[j];
        nan[j] |= x != x;
      }
    float here = kLowest;
    for (const Quad& q : best)
      for (size_t j = 0; j < 4; ++j) here = std::max(here, q[j]);
    for (; i < end; ++i) {
      here = std::max(here, logits[i]);
      odd_nan |= logits[i] != logits[i];
    }
    if (here > largest.logit) largest = {here, begin};
  }
  if (odd_nan || any(nan[0] | nan[1] | nan[2] | nan[3])) bad_logits("the model computed NaN");
  return largest;
}

// Whether a stands before b in the one order used everywhere: larger logit, then lower id.
struct Before {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  }
};

// Leaves the k best ids in `ids` in any order but for the worst of them, which is the last. Room
// for 4 k ids and some: candidates gather above the worst of the best so far, and each time the
// room is full the k best of them stay. Ids come in ascending order, so an equal logit never
// displaces one that is already in. Throws for NaN, in the same pass.
void select_best(std::span<const float> logits, size_t k, std::vector<int32_t>& ids) {
  const size_t n = logits.size();
  k = std::min(k, n);
  const size_t room = std::min(n, 4 * k + kBlock);
  ids.clear();
  float worst = -std::numeric_limits<float>::infinity();
  const auto shrink = [&] {
    const auto last = ids.begin() + static_cast<std::ptrdiff_t>(k) - 1;
    std::nth_element(ids.begin(), last, ids.end(), Before{logits});
    ids.resize(k);
    worst = logits[static_cast<size_t>(ids.back())];
  };
  bool odd_nan = false;  // in no full set of lanes
  for (size_t i = 0; i < room; ++i) {
    odd_nan |= logits[i] != logits[i];
    ids.push_back(static_cast<int32_t>(i));
  }
  if (odd_nan) bad_logits("the model computed NaN");  // they have no order to be sorted in
  shrink();
  QuadMask nan[kQuads] = {};
  for (size_t i = room; i < n; i += kLanes) {
    const size_t end = std::min(i + kLanes, n);
    if (end - i == kLanes) {
      const Quad border{worst, worst, worst, worst};
      QuadMask above{};
      for (size_t j = 0; j < kQuads; ++j) {
        const Quad x = quad_at(&logits[i + 4 * j]);
        above |= x > border;
        nan[j] |= x != x;
      }
      if (!any(above)) continue;
    }
    if (ids.size() + kLanes > room) shrink();
    for (size_t j = i; j < end; ++j) {
      odd_nan |= logits[j] != logits[j];
      if (logits[j] > worst) ids.push_back(static_cast<int32_t>(j));  // never NaN
    }
  }
  if (odd_nan || any(nan[0] | nan[1] | nan[2] | nan[3])) bad_logits("the model computed NaN");
  shrink();
}

// prob <- exp((logits - shift) * scale)
#if defined(__GNUC__)
__attribute__((always_inline))
#endif
inline void
exp_body(const float* logits, size_t n, float shift, double scale, double* prob) {
  for (size_t i = 0; i < n; ++i) prob[i] = weight_of(logits[i], shift, scale);
}
void exp_plain(const float* logits, size_t n, float shift, double scale, double* prob) {
  exp_body(logits, n, shift, scale, prob);
}
using ExpLoop = void (*)(const float*, size_t, float, double, double*);
#if defined(__x86_64__) && defined(__GNUC__)
// avx2 without fma, which would change bits.
__attribute__((target("avx2"))) void exp_avx2(const float* logits, size_t n, float shift,
                                              double scale, double* prob) {
  exp_body(logits, n, shift, scale, prob);
}
const ExpLoop exp_loop = __builtin_cpu_supports("avx2") ? exp_avx2 : exp_plain;
#else
const ExpLoop exp_loop = exp_plain;
#endif

uint64_t mass_sum(const double* prob, size_t n) {
  uint64_t all = 0;
  for (size_t i = 0; i < n; ++i) all += mass_of(prob[i]);
  return all;
}

// Buckets of mass: the logits of [high - width, high] in equal steps; index 0 holds the largest.
struct Buckets {
  static constexpr size_t kCount = 1024;
  double high, scale;
  Buckets(double highest, double width) : high(highest), scale((kCount - 1) / width) {}
  // Not a valid index when >= kCount.
  double place(float logit) const { return (high - static_cast<double>(logit)) * scale; }
};

// Of candidates `ids` (ascending), the one with which their mass, best first, reaches `need`. The
// bucket that holds the answer becomes the candidates until few are left. Overwrites `ids`.
int32_t border_of(std::span<const float> logits, std::span<const double> prob, uint64_t need,
                  std::span<int32_t> ids) {
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const auto mass = [&](int32_t id) { return mass_of(prob[static_cast<size_t>(id)]); };
  constexpr size_t kFew = 64;
  uint64_t reached = 0;  // by what stands before all candidates
  while (ids.size() > kFew) {
    float high = logit(ids[0]), low = high;
    for (const int32_t id : ids) {
      high = std::max(high, logit(id));
      low = std::min(low, logit(id));
    }
    if (high == low) break;
    const Buckets buckets(high, static_cast<double>(high) - static_cast<double>(low));
    std::array<uint64_t, Buckets::kCount> masses{};
    for (const int32_t id : ids) masses[static_cast<size_t>(buckets.place(logit(id)))] += mass(id);
    size_t chosen = 0;
    while (reached + masses[chosen] < need) reached += masses[chosen++];
    size_t kept = 0;
    for (const int32_t id : ids) {
      ids[kept] = id;
      kept += static_cast<size_t>(buckets.place(logit(id))) == chosen ? 1 : 0;
    }
    ids = ids.first(kept);
  }
  // More than a few have equal logits: they stand in order as they are.
  if (ids.size() <= kFew) std::sort(ids.begin(), ids.end(), Before{logits});
  size_t i = 0;
  while ((reached += mass(ids[i])) < need) ++i;
  return ids[i];
}

// Zeroes everything outside the smallest set (best first) whose mass reaches top_p of all.
// prob = exp((logits - best) * scale), or 0 where top-k has cut.
void keep_nucleus(std::span<const float> logits, double best, double scale, double top_p,
                  std::vector<double>& prob, std::vector<int32_t>& order) {
  const size_t n = prob.size();
  EVALRUN_CHECK(n < kMaxSampledVocab, "a vocabulary of {}", n);
  const uint64_t total = mass_sum(prob.data(), n);
  const auto all = static_cast<double>(total);
  const uint64_t need = nucleus_mass(top_p, total);
  // All tokens below (1 - top_p) / V hold less than 1 - top_p together, so the set ends above; half
  // of that leaves room for rounding. A mass of half a unit is counted as none.
  const double floor = std::max(0.5, 0.5 * (1.0 - top_p) * all / static_cast<double>(n)) * 0x1p-44;
  const Buckets buckets(best, (1.0 - std::log(floor)) / scale);
  std::array<uint64_t, Buckets::kCount> masses{};
  for (size_t i = 0; i < n; ++i) {
    const double place = buckets.place(logits[i]);
    if (place < static_cast<double>(Buckets::kCount))
      masses[static_cast<size_t>(place)] += mass_of(prob[i]);
  }
  uint64_t reached = 0;
  size_t chosen = 0;
  while (reached + masses[chosen] < need) reached += masses[chosen++];
  order.clear();
  const auto first = static_cast<double>(chosen), behind = static_cast<double>(chosen + 1);
  for (size_t i = 0; i < n; ++i) {
    const double place = buckets.place(logits[i]);
    if (place >= first && place < behind && prob[i] > 0) order.push_back(static_cast<int32_t>(i));
  }
  const auto border = static_cast<size_t>(border_of(logits, prob, need - reached, order));
  const float last = logits[border];
  for (size_t i = 0; i <= border; ++i) prob[i] = logits[i] >= last ? prob[i] : 0.0;
  for (size_t i = border + 1; i < n; ++i) prob[i] = logits[i] > last ? prob[i] : 0.0;
}

// At most kBlock values.
double block_sum(std::span<const double> values) {
  double lane[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) lane[j] += values[i + j];
  for (; i < values.size(); ++i) lane[0] += values[i];
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  return lane[0];
}

std::span<const double> block_at(std::span<const double> values, size_t begin) {
  return values.subspan(begin, std::min(kBlock, values.size() - begin));
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

const char* to_string(Sampler sampler) {
  return sampler == Sampler::kInverse ? "inverse" : "gumbel";
}

Sampler parse_sampler(std::string_view text, std::string_view where) {
  for (const Sampler sampler : {Sampler::kInverse, Sampler::kGumbel})
    if (text == to_string(sampler)) return sampler;
  throw base::usage_error(fmt::format("{} must be inverse or gumbel, found '{}'", where, text),
                          "inverse draws as usual; gumbel lets drafters draw by the same noise");
}

double inverse_temperature(const SamplingParams& params) {
  // Below 1e-300 the reciprocal would overflow; any logit but the best has no mass long before.
  return 1.0 / std::max(params.temperature, 1e-300);
}

int32_t argmax(std::span<const float> logits) {
  const auto [best, block] = find_largest(logits);
  size_t i = block;
  while (logits[i] != best) ++i;
  return static_cast<int32_t>(i);
}

void top_k(std::span<const float> logits, int k, std::vector<TokenLogit>& best,
           WarpScratch& scratch) {
  EVALRUN_CHECK(k > 0 && !logits.empty(), "the best {} of {} logits", k, logits.size());
  std::vector<int32_t>& ids = scratch.order;
  select_best(logits, static_cast<size_t>(k), ids);
  std::sort(ids.begin(), ids.end(), Before{logits});
  best.clear();
  for (int32_t id : ids) best.push_back({id, logits[static_cast<size_t>(id)]});
}

std::vector<TokenLogit> top_k(std::span<const float> logits, int k) {
  std::vector<TokenLogit> best;
  WarpScratch scratch;
  top_k(logits, k, best, scratch);
  return best;
}

float largest_logit(std::span<const float> logits) { return find_largest(logits).logit; }

void check_finite_best(float best) {
  if (!std::isfinite(best)) bad_logits("no finite logit, or an infinite one");
}

namespace {

float finite_best(std::span<const float> logits) {
  const float best = largest_logit(logits);
  check_finite_best(best);
  return best;
}

}  // namespace

void weigh(std::span<const float> logits, const SamplingParams& params, std::vector<double>& prob,
           WarpScratch& scratch) {
  EVALRUN_CHECK(params.temperature > 0, "greedy decoding has no distribution");
  const size_t n = logits.size();
  prob.resize(n);
  scratch.order.reserve(n);
  const float best = finite_best(logits);
  const double scale = inverse_temperature(params);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < n) {
    select_best(logits, static_cast<size_t>(params.top_k), scratch.order);
    const float lowest = logits[static_cast<size_t>(scratch.order.back())];
    for (size_t i = 0; i < n; ++i) prob[i] = logits[i] >= lowest ? 1.0 : 0.0;
    for (size_t i = 0; i < n; ++i)
      if (prob[i] != 0) prob[i] = weight_of(logits[i], best, scale);
  } else {
    exp_loop(logits.data(), n, best, scale, prob.data());
  }
  if (params.top_p < 1) keep_nucleus(logits, best, scale, params.top_p, prob, scratch.order);
}

void warp(std::span<const float> logits, const SamplingParams& params, std::vector<double>& prob,
          WarpScratch& scratch) {
  weigh(logits, params, prob, scratch);
  const double norm = 1.0 / sum(prob);
  for (double& p : prob) p *= norm;
}

int32_t draw(std::span<const float> logits, const SamplingParams& params, double uniform,
             WarpScratch& scratch) {
  EVALRUN_CHECK(logits.size() < kMaxSampledVocab, "a vocabulary of {}", logits.size());
  if (params.sampler == Sampler::kGumbel) {
    draw_by_noise(logits, params, uniform, 1, {}, scratch.tokens, scratch);
    return scratch.tokens.front();
  }
  const std::vector<double>& weight = scratch.weights;
  weigh(logits, params, scratch.weights, scratch);
  const uint64_t place = place_of_draw(uniform, mass_sum(weight.data(), weight.size()));
  // The block first, then the token in it.
  size_t begin = 0;
  uint64_t before = 0;
  for (;; begin += kBlock) {
    const uint64_t mass = mass_sum(&weight[begin], std::min(kBlock, weight.size() - begin));
    if (before + mass > place) break;
    before += mass;
  }
  while ((before += mass_of(weight[begin])) <= place) ++begin;
  return static_cast<int32_t>(begin);
}

uint64_t dist_masses(std::span<const float> logits, const SamplingParams& params,
                     std::vector<uint64_t>& mass, WarpScratch& scratch) {
  EVALRUN_CHECK(logits.size() < kMaxSampledVocab, "a vocabulary of {}", logits.size());
  weigh(logits, params, scratch.weights, scratch);
  mass.resize(logits.size());
  uint64_t all = 0;
  for (size_t i = 0; i < mass.size(); ++i) all += mass[i] = mass_of(scratch.weights[i]);
  return all;
}

double log_sum(std::span<const float> logits) {
  EVALRUN_CHECK(logits.size() < kMaxSampledVocab, "a vocabulary of {}", logits.size());
  const float best = finite_best(logits);
  std::array<double, kBlock> block;
  uint64_t all = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - begin);
    exp_loop(logits.data() + begin, n, best, 1.0, block.data());
    all += mass_sum(block.data(), n);
  }
  return log_sum_of(best, all);
}
double log_sum_of(float best, uint64_t mass) {
  return static_cast<double>(best) + std::log(static_cast<double>(mass) * kMassUnit);
}

double sum(std::span<const double> values) {
  double all = 0;
  for (size_t i = 0; i < values.size(); i += kBlock) all += block_sum(block_at(values, i));
  return all;
}

int32_t draw(std::span<const double> prob, base::Rng& rng) { return draw(prob, rng.uniform()); }

int32_t draw(std::span<const double> prob, double uniform) {
  const double all = sum(prob);
  EVALRUN_CHECK(all > 0 && std::isfinite(all), "cannot draw from a sum of {}", all);
  const double u = uniform * all;
  // The block first, then the token in it. Rounding can leave u at the very end: then the last
  // block with any mass, and the last possible token in it.
  size_t chosen = 0;
  double before = 0, upto = 0;
  for (size_t begin = 0; begin < prob.size() && u >= upto; begin += kBlock) {
    const double mass = block_sum(block_at(prob, begin));
    if (!(mass > 0)) continue;
    chosen = begin;
    before = upto;
    upto += mass;
  }
  size_t last = chosen;
  for (size_t i = chosen; i < std::min(chosen + kBlock, prob.size()); ++i) {
    if (prob[i] <= 0) continue;
    before += prob[i];
    last = i;
    if (u < before) break;
  }
  return static_cast<int32_t>(last);
}

}  // namespace evalrun::engine
