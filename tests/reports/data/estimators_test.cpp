// Estimators against numbers worked out by other routes: direct formulas, jackknife, special cases.
#include "reports/data/estimators.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/rng.h"
#include "reports/data/pairing.h"

namespace evalrun::reports {
namespace {

std::vector<PromptPair> random_pairs(int n, uint64_t seed, double spread) {
  base::Rng rng(seed);
  std::vector<PromptPair> pairs;
  for (int i = 0; i < n; ++i) {
    PromptPair p;
    p.base_tokens = static_cast<double>(20 + rng.below(200));
    p.base_ns = p.base_tokens * 1e7 * (1 + spread * (rng.uniform() - 0.5));
    p.tokens = static_cast<double>(20 + rng.below(200));
    p.ns = p.tokens * 6e6 * (1 + spread * (rng.uniform() - 0.5));
    pairs.push_back(p);
  }
  return pairs;
}

TEST(SpeedupSum, TwoPromptsByHand) {
  // AR: 10 tokens in 10 ns, 30 in 30 ns: 1 token/ns. Method: 10 in 5, 30 in 20: 40/25 = 1.6.
  const std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {30, 30, 30, 20}};
  const auto s = speedup_sum(pairs);
  ASSERT_TRUE(s.has_value());
  EXPECT_DOUBLE_EQ(s->value, 1.6);
  // u_1 = 10/40 - 5/25 - 10/40 + 10/40 = 0.05, u_2 = 30/40 - 20/25 - 30/40 + 30/40 = -0.05;
  // SE = sqrt(2/1 * 2 * 0.0025) = 0.1; t_{1, .975} = tan(0.475 pi).
  const double half = std::tan(0.475 * M_PI) * 0.1;
  ASSERT_TRUE(s->interval.has_value());
  EXPECT_NEAR(s->interval->lo, 1.6 * std::exp(-half), 1e-10);
  EXPECT_NEAR(s->interval->hi, 1.6 * std::exp(half), 1e-10);
}

TEST(RatioOfSums, TwoPromptsByHand) {
  // 10 of 5 and 30 of 20: 40/25; u_1 = 10/40 - 5/25 = 0.05, u_2 = -0.05, SE as above.
  const std::vector<RatioTerm> terms = {{10, 5}, {30, 20}};
  const auto s = ratio_of_sums(terms);
  ASSERT_TRUE(s.has_value());
  EXPECT_DOUBLE_EQ(s->value, 1.6);
  ASSERT_TRUE(s->interval.has_value());
  EXPECT_NEAR(s->interval->hi, 1.6 * std::exp(std::tan(0.475 * M_PI) * 0.1), 1e-10);
  EXPECT_FALSE(ratio_of_sums({}).has_value());
  const std::vector<RatioTerm> none = {{10, 0}};
  EXPECT_FALSE(ratio_of_sums(none).has_value());
}

TEST(SpeedupSum, StandardErrorAgreesWithTheJackknife) {
  // The delete-one jackknife estimates the same quantity by another route. The two agree to
  // O(1/n) relative; at n = 200 that is well below 5 %.
  const auto pairs = random_pairs(200, 3, 0.6);
  const auto s = speedup_sum(pairs);
  std::vector<double> logs;
  for (size_t skip = 0; skip < pairs.size(); ++skip) {
    std::vector<PromptPair> rest = pairs;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(skip));
    logs.push_back(std::log(speedup_sum(rest)->value));
  }
  const double n = static_cast<double>(pairs.size());
  const double jackknife = base::sample_sd(logs) * (n - 1) / std::sqrt(n);
  const double half = std::log(s->interval->hi / s->value);
  const double standard_error = half / base::student_t_quantile(0.975, n - 1);
  EXPECT_NEAR(standard_error / jackknife, 1, 0.05);
}

TEST(SpeedupSum, EqualTextsReduceToTheRatioOfTimes) {
  auto pairs = random_pairs(30, 4, 0.4);
  double base_ns = 0, ns = 0;
  for (PromptPair& p : pairs) p.tokens = p.base_tokens, base_ns += p.base_ns, ns += p.ns;
  EXPECT_NEAR(speedup_sum(pairs)->value, base_ns / ns, 1e-12);
}

TEST(SpeedupSum, CoversTheTruthAboutAsOftenAsItSays) {
  // 400 experiments of 40 prompts with a known population speedup. Nominal 95 %; the delta interval
  // falls a little short for so few prompts. Binomial standard deviation at 400: 1.1 points.
  int covered = 0;
  const double truth = 1e7 / 6e6;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto s = speedup_sum(random_pairs(40, 1000 + seed, 0.5));
    covered += s->interval->lo < truth && truth < s->interval->hi;
  }
  EXPECT_GT(covered, 400 * 0.90);
  EXPECT_LT(covered, 400 * 0.99);
}

TEST(SpeedupGeo, ByHandAndSymmetric) {
  const std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {30, 30, 30, 60}};  // 2 and 1/2
  const auto s = speedup_geo(pairs);
  EXPECT_NEAR(s->value, 1, 1e-15);
  // logs +-ln 2: sd = sqrt(2) ln 2, SE = ln 2.
  EXPECT_NEAR(std::log(s->interval->hi), std::tan(0.475 * M_PI) * std::log(2), 1e-9);
  // Swapping the arms inverts it.
  auto random = random_pairs(25, 5, 0.5);
  const auto forward = speedup_geo(random);
  for (PromptPair& p : random) std::swap(p.tokens, p.base_tokens), std::swap(p.ns, p.base_ns);
  const auto backward = speedup_geo(random);
  EXPECT_NEAR(forward->value * backward->value, 1, 1e-12);
  EXPECT_NEAR(forward->interval->lo * backward->interval->hi, 1, 1e-12);
}

TEST(SpeedupLegacy, TwoPromptsByHand) {
  // AR: 10 in 10 and 30 in 60, speeds 1 and .5. Method: 10 in 5 and 30 in 60, speeds 2 and .5:
  // mean 1.25 over mean .75. The ratio of sums would be (40/65) / (40/70).
  const std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {30, 60, 30, 60}};
  const auto s = speedup_legacy(pairs);
  ASSERT_TRUE(s.has_value());
  EXPECT_DOUBLE_EQ(s->value, 5.0 / 3);
  // u_1 = 2/2.5 - 1/1.5 = 2/15, u_2 = -2/15; SE = sqrt(2/1 * 2 * (2/15)^2) = 4/15.
  const double half = std::tan(0.475 * M_PI) * 4 / 15;
  ASSERT_TRUE(s->interval.has_value());
  EXPECT_NEAR(std::log(s->interval->lo), std::log(5.0 / 3) - half, 1e-9);
  EXPECT_NEAR(std::log(s->interval->hi), std::log(5.0 / 3) + half, 1e-9);
}

TEST(SpeedupLegacy, LongAnswersCountNoMoreThanShortOnes) {
  // Scaling one prompt's lengths and times leaves its speeds, and so the mean of speeds.
  std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {30, 60, 30, 60}};
  const double before = speedup_legacy(pairs)->value, sum = speedup_sum(pairs)->value;
  pairs[1] = {300, 600, 300, 600};
  EXPECT_DOUBLE_EQ(speedup_legacy(pairs)->value, before);
  EXPECT_LT(speedup_sum(pairs)->value, sum);
}

TEST(Speedup, EdgeCases) {
  EXPECT_FALSE(speedup_sum({}).has_value());
  EXPECT_FALSE(speedup_geo({}).has_value());
  // Nothing decoded (the first token was a stop token): no ratio, but the sums go on.
  const std::vector<PromptPair> pairs = {{0, 0, 0, 0}, {10, 10, 10, 5}};
  EXPECT_DOUBLE_EQ(speedup_sum(pairs)->value, 2);
  EXPECT_EQ(speedup_geo(pairs)->n, 1);
  EXPECT_FALSE(speedup_geo(pairs)->interval.has_value());
  const std::vector<PromptPair> one = {{10, 10, 10, 5}};
  EXPECT_FALSE(speedup_sum(one)->interval.has_value());
  const std::vector<PromptPair> none = {{0, 0, 0, 0}};
  EXPECT_FALSE(speedup_sum(none).has_value());
  EXPECT_FALSE(speedup_legacy({}).has_value());
  EXPECT_FALSE(speedup_legacy(none).has_value());
  EXPECT_EQ(speedup_legacy(pairs)->n, 1);
  EXPECT_FALSE(speedup_legacy(pairs)->interval.has_value());
}

TEST(Speedup, TheNamedEstimatorIsTaken) {
  const auto pairs = random_pairs(12, 9, 0.7);
  EXPECT_EQ(speedup(pairs, Estimator::kSum)->value, speedup_sum(pairs)->value);
  EXPECT_EQ(speedup(pairs, Estimator::kGeo)->value, speedup_geo(pairs)->value);
  EXPECT_EQ(speedup(pairs, Estimator::kLegacy)->value, speedup_legacy(pairs)->value);
}

TEST(Explain, TheIdentityHolds) {
  // speedup = tau / (t_ratio v + draft + overhead), v = verify share of the baseline's step, for
  // any counters whose accounting is right (emitted = decode tokens).
  base::Rng rng(6);
  for (int i = 0; i < 100; ++i) {
    Counters b, m;
    b.steps = b.emitted = b.n_decode = static_cast<double>(10 + rng.below(100));
    b.verify_ns = b.steps * (1e6 + rng.uniform() * 1e6);
    b.decode_ns = b.verify_ns * (1 + 0.2 * rng.uniform());
    m.steps = static_cast<double>(5 + rng.below(50));
    m.emitted = m.n_decode = m.steps * (1 + 3 * rng.uniform());
    m.verify_ns = m.steps * (1e6 + rng.uniform() * 1e6);
    m.draft_ns = m.steps * rng.uniform() * 1e6;
    m.decode_ns = m.verify_ns + m.draft_ns + m.steps * rng.uniform() * 1e5;
    const auto e = explain(m, b);
    ASSERT_TRUE(e.has_value());
    const double v = b.verify_ns / b.decode_ns;
    const double speedup = (m.n_decode / m.decode_ns) / (b.n_decode / b.decode_ns);
    EXPECT_NEAR(e->tau / (e->t_ratio * v + e->draft_share + e->overhead) / speedup, 1, 1e-12);
    EXPECT_NEAR(e->tau / (e->t_ratio + e->draft_share + e->overhead) * (1 + e->residual) / speedup,
                1, 1e-12);
    // What is left is the baseline's own non-forward time, weighted by the method's forward share.
    const double denominator = e->t_ratio + e->draft_share + e->overhead;
    EXPECT_NEAR(e->residual, e->t_ratio * (1 - v) / (denominator - e->t_ratio * (1 - v)), 1e-12);
    EXPECT_LE(e->residual, 1 / v - 1 + 1e-12);
  }
}

TEST(Explain, AMiscountShowsInTheResidual) {
  Counters b, m;
  b.steps = b.emitted = b.n_decode = 100, b.verify_ns = b.decode_ns = 1e9;
  m.steps = 50, m.n_decode = 100, m.emitted = 150, m.verify_ns = m.decode_ns = 5e8;
  EXPECT_NEAR(explain(m, b)->residual, 100.0 / 150 - 1, 1e-12);
}

}  // namespace
}  // namespace evalrun::reports
