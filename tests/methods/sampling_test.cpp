// Sampling against straightforward references that sort the whole vocabulary.
#include "engine/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/base/error.h"
#include "engine/noise_arith.h"
#include "tests/methods/support/statistics.h"

namespace evalrun::tests::sampling_test {
namespace {

using engine::SamplingParams;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Few distinct values, so that ties are common.
std::vector<float> random_logits(base::Rng& rng, size_t n, bool ties, bool holes) {
  std::vector<float> logits(n);
  for (float& l : logits) {
    l = static_cast<float>(8 * rng.uniform() - 4);
    if (ties) l = std::round(l);
    if (holes && rng.below(4) == 0) l = -kInf;
  }
  logits[rng.below(n)] = 1.0f;  // at least one is finite
  return logits;
}

std::vector<int32_t> sorted_ids(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return ids;
}

// Temperature, top-k, top-p as transformers applies them, one after the other on whole rows.
std::vector<double> reference_warp(const std::vector<float>& logits, const SamplingParams& params) {
  const size_t n = logits.size();
  const std::vector<int32_t> ids = sorted_ids(logits);
  std::vector<double> scaled(logits.begin(), logits.end());
  const double best = *std::max_element(scaled.begin(), scaled.end());
  for (double& s : scaled) s = (s - best) / params.temperature;
  if (params.top_k > 0) {
    const size_t k = std::min(static_cast<size_t>(params.top_k), n);
    const double border = scaled[static_cast<size_t>(ids[k - 1])];
    for (double& s : scaled)
      if (s < border) s = -std::numeric_limits<double>::infinity();
  }
  const auto softmax = [&] {
    std::vector<double> p(n);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += p[i] = std::exp(scaled[i]);
    for (double& v : p) v /= sum;
    return p;
  };
  if (params.top_p < 1) {
    const std::vector<double> p = softmax();
    double before = 0;
    for (int32_t id : ids) {
      if (before >= params.top_p)
        scaled[static_cast<size_t>(id)] = -std::numeric_limits<double>::infinity();
      before += p[static_cast<size_t>(id)];
    }
  }
  return softmax();
}

TEST(Argmax, TakesTheLowestIdOfTheLargest) {
  base::Rng rng(1);
  for (int round = 0; round < 500; ++round) {
    const auto logits = random_logits(rng, 1 + rng.below(100), round % 2 == 0, round % 3 == 0);
    EXPECT_EQ(engine::argmax(logits), sorted_ids(logits).front()) << "round " << round;
  }
  EXPECT_EQ(engine::argmax(std::vector<float>(40, -kInf)), 0);
  EXPECT_EQ(engine::argmax(std::vector<float>{-0.0f, 0.0f}), 0);
}

TEST(Argmax, TiesInDistantBlocksGoToTheLowestId) {
  for (size_t first : {0u, 15u, 1023u, 1024u, 2500u, 4998u}) {
    std::vector<float> logits(5000, -1.0f);
    logits[first] = logits[4999] = 2.0f;
    EXPECT_EQ(engine::argmax(logits), static_cast<int32_t>(first));
  }
}

TEST(Argmax, RefusesNanWhereverItStands) {
  for (size_t n : {1u, 15u, 16u, 17u, 48u, 1041u}) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> logits(n, 1.0f);
      logits[at] = kNan;
      EXPECT_THROW(engine::argmax(logits), base::Error) << at << " of " << n;
    }
  }
}

TEST(TopK, EqualsTheSortedVocabulary) {
  base::Rng rng(2);
  for (int round = 0; round < 500; ++round) {
    const auto logits = random_logits(rng, 1 + rng.below(80), round % 2 == 0, round % 3 == 0);
    const auto ids = sorted_ids(logits);
    const int k = 1 + static_cast<int>(rng.below(90));
    const auto best = engine::top_k(logits, k);
    ASSERT_EQ(best.size(), std::min(logits.size(), static_cast<size_t>(k)));
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(best[i].token, ids[i]) << "round " << round << " rank " << i;
      EXPECT_EQ(best[i].logit, logits[static_cast<size_t>(ids[i])]);
    }
  }
}

TEST(Warp, EqualsTheReference) {
  base::Rng rng(3);
  engine::WarpScratch scratch;
  std::vector<double> prob;
  const double temperatures[] = {0.25, 0.7, 1.0, 1.7};
  const int top_ks[] = {0, 1, 2, 5, 40, 1000};
  const double top_ps[] = {1.0, 0.95, 0.5, 0.1, 1e-9};
  for (int round = 0; round < 2000; ++round) {
    const auto logits = random_logits(rng, 1 + rng.below(60), round % 2 == 0, round % 3 == 0);
    const SamplingParams params{temperatures[rng.below(4)], top_ks[rng.below(6)],
                                top_ps[rng.below(5)]};
    engine::warp(logits, params, prob, scratch);
    const auto expected = reference_warp(logits, params);
    ASSERT_EQ(prob.size(), expected.size());
    double sum = 0;
    for (size_t i = 0; i < prob.size(); ++i) {
      // Same formula in float64; only the order of sums differs.
      EXPECT_NEAR(prob[i], expected[i], 1e-14) << "round " << round << " id " << i;
      EXPECT_EQ(prob[i] == 0, expected[i] == 0) << "round " << round << " id " << i;
      sum += prob[i];
    }
    EXPECT_NEAR(sum, 1.0, 1e-14);
  }
}

TEST(TopK, EqualsTheSortedVocabularyWhenItIsLarge) {
  base::Rng rng(21);
  for (int round = 0; round < 60; ++round) {
    auto logits = random_logits(rng, 3000 + rng.below(3000), round % 2 == 0, round % 3 == 0);
    // Ascending: every token displaces another.
    if (round % 5 == 0) std::sort(logits.begin(), logits.end());
    const auto ids = sorted_ids(logits);
    const int k = 1 + static_cast<int>(rng.below(round % 4 == 0 ? 7000 : 60));
    const auto best = engine::top_k(logits, k);
    ASSERT_EQ(best.size(), std::min(logits.size(), static_cast<size_t>(k)));
    for (size_t i = 0; i < best.size(); ++i) ASSERT_EQ(best[i].token, ids[i]) << round;
  }
}

// Wherever it stands: among the first candidates, in a set of lanes, after the last full one.
TEST(TopK, RefusesNan) {
  base::Rng rng(4);
  for (const size_t place : {0u, 200u, 1000u, 2999u, 3004u}) {
    auto logits = random_logits(rng, 3005, false, false);
    EXPECT_NO_THROW(engine::top_k(logits, 8));
    logits[place] = kNan;
    EXPECT_THROW(engine::top_k(logits, 8), base::Error) << place;
  }
}

// Against sums in long double over the sorted vocabulary: what is kept is a front part of that
// order, it reaches top_p, and without its last token it does not.
TEST(Warp, KeepsTheSmallestFrontPartThatReachesTopP) {
  base::Rng rng(22);
  engine::WarpScratch scratch;
  std::vector<double> prob;
  const double temperatures[] = {0.05, 0.6, 1.0, 3.0, 100.0};
  const double top_ps[] = {1e-9, 0.1, 0.5, 0.95, 0.999, 1 - 1e-7};
  const int top_ks[] = {0, 0, 30, 2000};
  for (int round = 0; round < 300; ++round) {
    auto logits = random_logits(rng, 1 + rng.below(6000), round % 4 == 0, round % 3 == 0);
    if (round % 2 == 0)
      for (float& l : logits) l *= 5;
    const SamplingParams params{temperatures[rng.below(5)], top_ks[rng.below(4)],
                                top_ps[rng.below(6)]};
    engine::warp(logits, params, prob, scratch);
    const std::vector<int32_t> ids = sorted_ids(logits);
    const auto at = [&](size_t rank) { return static_cast<size_t>(ids[rank]); };
    size_t n = ids.size();  // candidates: ties with the k-th stay
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < n) {
      const float border = logits[at(static_cast<size_t>(params.top_k) - 1)];
      while (logits[at(n - 1)] < border) --n;
    }
    const auto weight = [&](size_t rank) {
      return std::exp((static_cast<long double>(logits[at(rank)]) - logits[at(0)]) /
                      params.temperature);
    };
    long double total = 0;
    for (size_t i = 0; i < n; ++i) total += weight(i);
    size_t kept = 0;
    while (kept < ids.size() && prob[at(kept)] > 0) ++kept;
    for (size_t i = kept; i < ids.size(); ++i) ASSERT_EQ(prob[at(i)], 0) << "round " << round;
    long double mass = 0;
    for (size_t i = 0; i < kept; ++i) mass += weight(i);
    const long double rounding = 1e-9L;  // 6,000 masses rounded to 2^-45 of the largest
    ASSERT_LE(kept, n);
    EXPECT_GE(mass / total, params.top_p - rounding) << "round " << round;
    EXPECT_LT((mass - weight(kept - 1)) / total, params.top_p + rounding) << "round " << round;
    for (size_t i = 0; i < kept; ++i)
      ASSERT_NEAR(prob[at(i)] / static_cast<double>(weight(i) / mass), 1.0, 2e-13)
          << "round " << round << " rank " << i;
  }
}

// Masses of equal tokens are equal, so that the set is known exactly however many there are.
TEST(Warp, CutsAmongManyEqualTokensById) {
  engine::WarpScratch scratch;
  std::vector<double> prob;
  for (size_t n : {1u, 3u, 64u, 65u, 4096u, 49152u}) {
    std::vector<float> logits(n + 2, 0.5f);
    logits[1] = -kInf, logits[n + 1] = -kInf;
    for (double top_p : {1e-12, 0.25, 0.5, 0.75}) {
      engine::warp(logits, {0.7, 0, top_p}, prob, scratch);
      const auto kept = static_cast<size_t>(std::ceil(top_p * static_cast<double>(n)));
      for (size_t i = 0, seen = 0; i < prob.size(); ++i) {
        const bool possible = logits[i] > 0;
        EXPECT_EQ(prob[i] > 0, possible && seen < kept) << n << ' ' << top_p << " id " << i;
        seen += possible;
      }
    }
  }
}

TEST(Warp, ProbabilitiesFollowExpDownToTheSmallestNumbers) {
  engine::WarpScratch scratch;
  std::vector<double> prob;
  std::vector<float> logits;
  for (int i = 0; i < 8000; ++i) logits.push_back(-0.1f * static_cast<float>(i));
  engine::warp(logits, {1.0, 0, 1.0}, prob, scratch);
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = std::exp(static_cast<double>(logits[i]));
    if (expected > 1e-300)
      ASSERT_NEAR(prob[i] * sum / expected, 1.0, 1e-14) << logits[i];
    else
      ASSERT_NEAR(prob[i] * sum, expected, 1e-300) << logits[i];
    if (logits[i] < -746) {
      ASSERT_EQ(prob[i], 0);
    }
  }
}

TEST(Sum, AddsEverythingOnce) {
  for (size_t n : {0u, 1u, 15u, 16u, 255u, 256u, 257u, 1000u}) {
    std::vector<double> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<double>(i + 1);  // exact sums
    EXPECT_EQ(engine::sum(values), static_cast<double>(n * (n + 1) / 2));
  }
}

TEST(Warp, KeepsTiesAtTheTopKBorderAndCutsTiesInTopPByRank) {
  engine::WarpScratch scratch;
  std::vector<double> prob;
  engine::warp(std::vector<float>{1, 2, 1, 1, 0}, {1.0, 2, 1.0}, prob, scratch);
  EXPECT_GT(prob[0], 0);
  EXPECT_GT(prob[2], 0);
  EXPECT_GT(prob[3], 0);
  EXPECT_EQ(prob[4], 0);
  engine::warp(std::vector<float>{1, 1, 1, 1}, {1.0, 0, 0.5}, prob, scratch);
  EXPECT_EQ(prob, (std::vector<double>{0.5, 0.5, 0, 0}));
}

TEST(Warp, SurvivesExtremesAndRefusesNonsense) {
  engine::WarpScratch scratch;
  std::vector<double> prob;
  engine::warp(std::vector<float>{3e38f, -3e38f, 0}, {1e-300, 0, 1.0}, prob, scratch);
  EXPECT_EQ(prob, (std::vector<double>{1, 0, 0}));
  const auto refuse = [&](std::vector<float> logits) {
    EXPECT_THROW(engine::warp(logits, {1.0, 0, 1.0}, prob, scratch), base::Error);
  };
  refuse({0, kNan});
  refuse({0, kInf});
  refuse({-kInf, -kInf});
  EXPECT_THROW(engine::warp(std::vector<float>{0, 1}, {0.0, 0, 1.0}, prob, scratch),
               base::InternalError);
}

TEST(Warp, ValidatesParameters) {
  EXPECT_NO_THROW(engine::validate({0.0, 0, 1.0}));
  EXPECT_NO_THROW(engine::validate({1.5, 50, 0.01}));
  for (const SamplingParams& bad :
       {SamplingParams{-1, 0, 1}, SamplingParams{NAN, 0, 1}, SamplingParams{INFINITY, 0, 1},
        SamplingParams{1, -1, 1}, SamplingParams{1, 0, 0}, SamplingParams{1, 0, 1.1},
        SamplingParams{1, 0, NAN}})
    EXPECT_THROW(engine::validate(bad), base::Error);
}

TEST(Draw, FollowsTheWeightsWhateverTheirSum) {
  const std::vector<double> dist = {0, 0.1, 0.5, 0, 0.15, 0.25, 0};
  for (double scale : {1.0, 1e-12, 37.0}) {
    std::vector<double> weights;
    for (double p : dist) weights.push_back(p * scale);
    base::Rng rng(4);
    std::vector<int64_t> counts(dist.size());
    for (int i = 0; i < 100000; ++i) ++counts[static_cast<size_t>(engine::draw(weights, rng))];
    EXPECT_GT(chi_square_p(counts, dist), 1e-6) << scale;  // fixed seed: passes or fails for ever
  }
  // Tokens with mass far apart, with empty blocks between and after them.
  std::vector<double> sparse(2000);
  sparse[3] = 1, sparse[700] = 2, sparse[1500] = 1;
  base::Rng far(6);
  std::vector<int64_t> counts(3);
  for (int i = 0; i < 100000; ++i) {
    const int32_t token = engine::draw(sparse, far);
    ASSERT_TRUE(token == 3 || token == 700 || token == 1500) << token;
    ++counts[token == 3 ? 0 : token == 700 ? 1 : 2];
  }
  EXPECT_GT(chi_square_p(counts, std::vector<double>{0.25, 0.5, 0.25}), 1e-6);
  base::Rng rng(5);
  EXPECT_THROW(engine::draw(std::vector<double>{0, 0}, rng), base::InternalError);
}

// By the inverse of the distribution over ids: just inside the ends of a token's share it is drawn.
TEST(Draw, OfLogitsInvertsTheDistribution) {
  base::Rng rng(8);
  engine::WarpScratch scratch;
  for (const int n : {1, 2, 7, 300, 5000})
    for (const engine::SamplingParams& params :
         {engine::SamplingParams{1, 0, 1}, engine::SamplingParams{0.5, 0, 0.9},
          engine::SamplingParams{3, 5, 1}, engine::SamplingParams{2, 40, 0.7}}) {
      std::vector<float> logits(static_cast<size_t>(n));
      for (float& x : logits) x = static_cast<float>(8 * rng.uniform());
      std::vector<double> dist;
      engine::warp(logits, params, dist, scratch);
      constexpr double kWithin = 1e-8;  // n 2^-45 and the rounding of a sum of n numbers
      double before = 0;
      int drawn = 0;
      for (int32_t token = 0; token < n; ++token) {
        const double p = dist[static_cast<size_t>(token)];
        const double begin = before + kWithin, end = before + p - kWithin;
        before += p;
        if (end <= begin) continue;
        ++drawn;
        for (const double uniform : {begin, (begin + end) / 2, end})
          ASSERT_EQ(engine::draw(logits, params, std::floor(uniform * 0x1p53) * 0x1p-53, scratch),
                    token)
              << n << " tokens, temperature " << params.temperature;
      }
      EXPECT_GT(drawn, 0);
      EXPECT_EQ(dist[static_cast<size_t>(engine::draw(logits, params, 0, scratch))] > 0, true);
      EXPECT_EQ(dist[static_cast<size_t>(engine::draw(logits, params, 1 - 0x1p-53, scratch))] > 0,
                true);
    }
  const std::vector<float> none(5, -std::numeric_limits<float>::infinity());
  EXPECT_THROW(engine::draw(none, {1, 0, 1}, 0.5, scratch), base::Error);
}

// Everybody's arrival, without blocks that are passed over.
std::vector<int32_t> whole_race(const std::vector<float>& logits, const SamplingParams& params,
                                double uniform, int k, const std::vector<int32_t>& ids) {
  engine::WarpScratch scratch;
  std::vector<double> weight;
  engine::weigh(logits, params, weight, scratch);
  const engine::TokenNoise noise(uniform);
  std::vector<std::pair<double, int32_t>> order;  // -speed, output
  for (size_t i = 0; i < weight.size(); ++i) {
    const auto output = static_cast<int32_t>(i);
    if (weight[i] > 0)
      order.emplace_back(-weight[i] / noise.arrival(ids.empty() ? output : ids[i]), output);
  }
  std::sort(order.begin(), order.end());
  std::vector<int32_t> first;
  for (const auto& [speed, output] : order)
    if (static_cast<int>(first.size()) < k) first.push_back(output);
  return first;
}

TEST(DrawByNoise, IsTheFirstOfTheWholeRace) {
  base::Rng rng(31);
  engine::WarpScratch scratch;
  // The first two, whose reciprocals are near the largest float64 and beyond it, are greedy.
  const double temperatures[] = {5e-324, 1e-300, 0.05, 0.3, 1, 4};
  const double top_ps[] = {1, 1, 0.9, 0.3};
  const int top_ks[] = {0, 0, 3, 50};
  int cold = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto logits = random_logits(rng, 1 + rng.below(1500), round % 3 == 0, round % 2 == 0);
    SamplingParams params{temperatures[rng.below(6)], top_ks[rng.below(4)], top_ps[rng.below(4)],
                          engine::Sampler::kGumbel};
    std::vector<int32_t> ids;
    if (round % 4 == 0)  // each of them once, in no order
      for (size_t i = 0; i < logits.size(); ++i)
        ids.push_back(static_cast<int32_t>((i * 7919 + 13) % 2003));
    const double uniform = rng.uniform();
    const int k = 1 + static_cast<int>(rng.below(8));
    std::vector<int32_t> drawn;
    engine::draw_by_noise(logits, params, uniform, k, ids, drawn, scratch);
    ASSERT_EQ(drawn, whole_race(logits, params, uniform, k, ids)) << "round " << round;
    if (params.temperature < 1e-200) {
      ++cold;
      const float best = *std::max_element(logits.begin(), logits.end());
      ASSERT_FALSE(drawn.empty()) << "round " << round;
      for (const int32_t output : drawn)
        ASSERT_EQ(logits[static_cast<size_t>(output)], best) << "round " << round;
    }
    if (ids.empty()) {
      ASSERT_EQ(engine::draw(logits, params, uniform, scratch), drawn[0]);
    }
  }
  EXPECT_GT(cold, 800);
  std::vector<int32_t> drawn;
  EXPECT_THROW(
      engine::draw_by_noise(std::vector<float>(5, -kInf), {1, 0, 1}, 0.5, 1, {}, drawn, scratch),
      base::Error);
  EXPECT_THROW(
      engine::draw_by_noise(std::vector<float>{1, kNan}, {1, 0, 1}, 0.5, 1, {}, drawn, scratch),
      base::Error);
}

// Over three blocks, of which the last is not full; the second draw is from the rest.
TEST(DrawByNoise, FollowsTheDistribution) {
  engine::WarpScratch scratch;
  std::vector<float> logits(600, -kInf);
  const std::vector<size_t> places = {0, 1, 255, 256, 300, 511, 512, 599};
  for (size_t i = 0; i < places.size(); ++i) logits[places[i]] = 0.4f * static_cast<float>(i);
  for (const SamplingParams& params :
       {SamplingParams{1, 0, 1}, SamplingParams{0.5, 0, 0.9}, SamplingParams{2, 5, 1}}) {
    std::vector<double> p;
    engine::warp(logits, params, p, scratch);
    std::vector<int64_t> first(logits.size()), second(logits.size());
    base::Rng rng(32);
    std::vector<int32_t> drawn;
    constexpr int kDraws = 200000;
    for (int i = 0; i < kDraws; ++i) {
      engine::draw_by_noise(logits, params, rng.uniform(), 2, {}, drawn, scratch);
      ++first[static_cast<size_t>(drawn.at(0))];
      ++second[static_cast<size_t>(drawn.at(1))];
    }
    EXPECT_GT(chi_square_p(first, p), 1e-6);
    std::vector<double> then(p.size());
    for (size_t a = 0; a < p.size(); ++a)
      for (size_t b = 0; b < p.size(); ++b)
        if (a != b && p[a] > 0) then[b] += p[a] * p[b] / (1 - p[a]);
    EXPECT_GT(chi_square_p(second, then), 1e-6);
  }
}

// Daliri, Musco, Suresh 2024, theorem 3: two that draw by the same noise agree at least so often.
TEST(DrawByNoise, TwoDistributionsAgreeAsOftenAsTheBoundSays) {
  base::Rng rng(33);
  engine::WarpScratch scratch;
  for (int round = 0; round < 10; ++round) {
    const auto p = random_logits(rng, 300, false, false);
    auto q = p;
    for (float& x : q) x += static_cast<float>(rng.uniform() * round / 4);
    const SamplingParams params{1, 0, 1, engine::Sampler::kGumbel};
    std::vector<double> a, b;
    engine::warp(p, params, a, scratch);
    engine::warp(q, params, b, scratch);
    double distance = 0;
    for (size_t i = 0; i < a.size(); ++i) distance += std::abs(a[i] - b[i]) / 2;
    int equal = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      const double uniform = rng.uniform();
      equal +=
          engine::draw(p, params, uniform, scratch) == engine::draw(q, params, uniform, scratch);
    }
    const double share = equal / double{kDraws}, bound = (1 - distance) / (1 + distance);
    EXPECT_GE(share, bound - 5 * std::sqrt(bound * (1 - bound) / kDraws))
        << "distance " << distance;
    EXPECT_LT(share, 1 - distance + 5 * std::sqrt(distance * (1 - distance) / kDraws) + 1e-9);
  }
}

TEST(MinusLog, IsThatOfTheLibrary) {
  base::Rng rng(34);
  EXPECT_EQ(engine::minus_log(1), 0);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? 1 - rng.uniform() : 1 - std::ldexp(rng.uniform(), -20);
    const double want = -std::log(x);
    ASSERT_NEAR(engine::minus_log(x), want, 1e-15 * want + 1e-16) << x;
  }
  EXPECT_NEAR(engine::minus_log(0x1p-53), 53 * std::log(2.0), 1e-14);
}

TEST(LogSum, IsThatOfTheExponentials) {
  base::Rng rng(9);
  for (const int n : {1, 3, 255, 256, 257, 5000}) {
    std::vector<float> logits(static_cast<size_t>(n));
    for (float& x : logits) x = static_cast<float>(30 * rng.uniform() - 40);
    long double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<long double>(x));
    EXPECT_NEAR(engine::log_sum(logits), static_cast<double>(std::log(sum)), 1e-9) << n;
  }
}

TEST(ChiSquare, TailMatchesTables) {
  // NIST/SEMATECH handbook, upper critical values.
  EXPECT_NEAR(chi_square_tail(3.841, 1), 0.05, 1e-4);
  EXPECT_NEAR(chi_square_tail(18.307, 10), 0.05, 1e-4);
  EXPECT_NEAR(chi_square_tail(149.449, 100), 0.001, 1e-5);
  EXPECT_NEAR(chi_square_tail(77.929, 100), 0.95, 1e-4);
}

}  // namespace
}  // namespace evalrun::tests::sampling_test
