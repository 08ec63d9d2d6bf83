// Estimators against numbers worked out by other routes: direct formulas, jackknife, special cases.
#include "reports/data/estimators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/rng.h"
#include "reports/data/jackknife.h"
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
  // Without one prompt: 1.5 or 2, so that both logs are ln(4/3) / 2 from their mean, and SE =
  // sqrt(1/2 * 2) of that. n_eff = 1 / (0.2^2 + 0.8^2) leaves less than one degree of freedom: one
  // it is, t_{1, .975} = tan(0.475 pi).
  const double half = std::tan(0.475 * M_PI) * std::log(4.0 / 3) / 2;
  EXPECT_DOUBLE_EQ(s->n_eff, 1 / 0.68);
  ASSERT_TRUE(s->interval.has_value());
  EXPECT_NEAR(s->interval->lo, 1.6 * std::exp(-half), 1e-10);
  EXPECT_NEAR(s->interval->hi, 1.6 * std::exp(half), 1e-10);
}

TEST(RatioOfSums, TwoPromptsByHand) {
  // 10 of 5 and 30 of 20: 40/25, SE as above.
  const std::vector<RatioTerm> terms = {{10, 5}, {30, 20}};
  const auto s = ratio_of_sums(terms);
  ASSERT_TRUE(s.has_value());
  EXPECT_DOUBLE_EQ(s->value, 1.6);
  ASSERT_TRUE(s->interval.has_value());
  EXPECT_NEAR(s->interval->hi, 1.6 * std::exp(std::tan(0.475 * M_PI) * std::log(4.0 / 3) / 2),
              1e-9);
  EXPECT_FALSE(ratio_of_sums({}).has_value());
  const std::vector<RatioTerm> none = {{10, 0}};
  EXPECT_FALSE(ratio_of_sums(none).has_value());
}

TEST(SpeedupSum, TheIntervalIsTheJackknifes) {
  // The estimates of all prompts but one, made the long way; degrees of freedom by their kurtosis.
  const auto pairs = random_pairs(25, 3, 0.6);
  const auto s = speedup_sum(pairs);
  std::vector<double> logs;
  for (size_t skip = 0; skip < pairs.size(); ++skip) {
    std::vector<PromptPair> rest = pairs;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(skip));
    logs.push_back(std::log(speedup_sum(rest)->value));
  }
  const double n = static_cast<double>(pairs.size());
  const double jackknife = base::sample_sd(logs) * (n - 1) / std::sqrt(n);
  const double mean = base::mean(logs);
  double squares = 0, fourths = 0, times = 0, time_squares = 0;
  for (const double log : logs)
    squares += std::pow(log - mean, 2), fourths += std::pow(log - mean, 4);
  for (const PromptPair& p : pairs) times += p.ns, time_squares += p.ns * p.ns;
  const double kurtosis = n * fourths / (squares * squares);
  const double n_eff = times * times / time_squares;
  EXPECT_NEAR(s->n_eff / n_eff, 1, 0.05) << "or the baseline's, which is much the same here";
  const double dof = std::min(s->n_eff - 1, 2 * n / (kurtosis - 1));
  EXPECT_NEAR(std::log(s->interval->hi / s->value) / jackknife,
              base::student_t_quantile(0.975, dof), 1e-6);
  EXPECT_NEAR(std::log(s->value / s->interval->lo) / jackknife,
              base::student_t_quantile(0.975, dof), 1e-6);
}

TEST(SpeedupSum, TheSmallerEffectiveNumberOfTheTwoArmsCounts) {
  // Twenty equal prompts; one takes long in one arm only: shares of 1/2 and 19 times 1/38.
  std::vector<PromptPair> pairs(20, {10, 10, 10, 5});
  pairs[0].ns = 19 * 5;
  const double n_eff = 1 / (0.25 + 19.0 / (38 * 38));
  EXPECT_NEAR(speedup_sum(pairs)->n_eff, n_eff, 1e-9);
  for (PromptPair& p : pairs) std::swap(p.tokens, p.base_tokens), std::swap(p.ns, p.base_ns);
  EXPECT_NEAR(speedup_sum(pairs)->n_eff, n_eff, 1e-9);
  EXPECT_EQ(speedup_geo(pairs)->n_eff, 20);
}

TEST(SpeedupSum, OneOutlierLeavesFewDegreesOfFreedom) {
  // Twenty prompts of one time, one of them with twice the tokens. The influences are 19 to 19
  // times -1, whatever their size: kurtosis 20 (19^4 + 19) / (19^2 + 19)^2.
  std::vector<PromptPair> pairs(20, {10, 10, 10, 5});
  pairs[4].tokens = 20;
  const double kurtosis = 20 * (std::pow(19, 4) + 19) / std::pow(19 * 19 + 19, 2);
  const double apart = std::log(200.0 / 190) / 20;  // of the 19 from the mean
  const double error = std::sqrt(19.0 / 20 * (19 * 19 + 19)) * apart;
  const auto s = speedup_sum(pairs);
  EXPECT_NEAR(s->n_eff, 20, 1e-9);
  EXPECT_NEAR(std::log(s->interval->hi / s->value),
              base::student_t_quantile(0.975, 40 / (kurtosis - 1)) * error, 1e-9);
}

TEST(SpeedupSum, ThePromptThatHasAllTheTimeSaysItAll) {
  std::vector<PromptPair> pairs(40, {1, 1, 1, 0.5});
  pairs[0] = {1e6, 1e6, 1e6, 1e6};
  const auto s = speedup_sum(pairs);
  EXPECT_LT(s->n_eff, 1.001);
  ASSERT_TRUE(s->interval);
  EXPECT_LT(s->interval->lo, 0.1) << "one degree of freedom";
  EXPECT_GT(s->interval->hi, 10);
  EXPECT_TRUE(std::isfinite(s->interval->hi));
  // Nothing else was decoded by one arm: without that prompt there is no speedup to compare with.
  const std::vector<PromptPair> alone = {{10, 10, 10, 5}, {10, 10, 0, 1}, {10, 10, 0, 1}};
  ASSERT_TRUE(speedup_sum(alone));
  EXPECT_FALSE(speedup_sum(alone)->interval);
}

TEST(SpeedupSum, EqualPromptsHaveAnIntervalOfNoWidth) {
  for (const size_t n : {2u, 3u, 40u}) {
    const std::vector<PromptPair> pairs(n, {10, 10, 10, 5});
    for (const Estimator e :
         {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy, Estimator::kLegacyDecode}) {
      const auto s = speedup(pairs, e);
      EXPECT_NEAR(s->value, 2, 1e-12);
      EXPECT_NEAR(s->n_eff, static_cast<double>(n), 1e-9);
      ASSERT_TRUE(s->interval) << to_string(e);
      EXPECT_NEAR(s->interval->lo, 2, 1e-9);
      EXPECT_NEAR(s->interval->hi, 2, 1e-9);
    }
  }
}

TEST(SpeedupSum, PromptsThatDecodedNothingAreNoPrompts) {
  std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {30, 30, 30, 20}};
  const auto before = speedup_sum(pairs);
  pairs.insert(pairs.begin(), 5, PromptPair{});
  const auto after = speedup_sum(pairs);
  EXPECT_EQ(after->n, 2);
  EXPECT_EQ(after->interval->hi, before->interval->hi);
}

TEST(Jackknife, KurtosisLeavesDegreesOfFreedom) {
  Jackknife j;
  j.deviations = {1, -1, 1, -1};
  EXPECT_EQ(j.kurtosis_dof(), std::numeric_limits<double>::infinity()) << "kurtosis 1";
  j.deviations = {0, 0, 0, 0};
  EXPECT_EQ(j.kurtosis_dof(), std::numeric_limits<double>::infinity()) << "no spread, none known";
  j.deviations = {1e-200, 0, 0, 0};  // kurtosis 4
  EXPECT_NEAR(j.kurtosis_dof(), 8.0 / 3, 1e-12);
}

TEST(SpeedupSum, EqualTextsReduceToTheRatioOfTimes) {
  auto pairs = random_pairs(30, 4, 0.4);
  double base_ns = 0, ns = 0;
  for (PromptPair& p : pairs) p.tokens = p.base_tokens, base_ns += p.base_ns, ns += p.ns;
  EXPECT_NEAR(speedup_sum(pairs)->value, base_ns / ns, 1e-12);
}

TEST(SpeedupSum, CoversTheTruthAboutAsOftenAsItSays) {
  // 400 experiments of 40 prompts with a known population speedup. Binomial standard deviation at
  // 400: 1.1 points.
  int covered = 0;
  const double truth = 1e7 / 6e6;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto s = speedup_sum(random_pairs(40, 1000 + seed, 0.5));
    covered += s->interval->lo < truth && truth < s->interval->hi;
  }
  EXPECT_GT(covered, 400 * 0.92);
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

TEST(EstimatorGap, ByHand) {
  // Speedups 1 and 4: geo 2, harmonic mean 8/5. One second each way: 100 tokens of the slow one.
  const std::vector<PromptPair> worse = {{100, 100, 100, 100}, {10, 10, 10, 2.5}, {}};
  const auto g = gap_of_estimators(worse);
  EXPECT_NEAR(g->by_spread, std::log(1.6 / 2), 1e-12);
  EXPECT_NEAR(g->by_length, std::log(110 / 102.5 / 1.6), 1e-12);
  EXPECT_LT(g->by_length, 0);
  const std::vector<PromptPair> better = {{10, 10, 10, 10}, {100, 100, 100, 25}};
  EXPECT_NEAR(gap_of_estimators(better)->by_spread, std::log(1.6 / 2), 1e-12);
  EXPECT_NEAR(gap_of_estimators(better)->by_length, std::log(110.0 / 35 / 1.6), 1e-12);
  const std::vector<PromptPair> equal = {{10, 10, 10, 10}, {10, 10, 10, 2.5}};
  EXPECT_NEAR(gap_of_estimators(equal)->by_length, 0, 1e-12);
  EXPECT_FALSE(gap_of_estimators({}));
}

TEST(SpeedupLegacy, TwoPromptsByHand) {
  // AR: 10 in 10 and 30 in 60, speeds 1 and .5. Method: 10 in 5 and 30 in 60, speeds 2 and .5:
  // mean 1.25 over mean .75. The ratio of sums would be (40/65) / (40/70).
  const std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {30, 60, 30, 60}};
  const auto s = speedup_legacy(pairs);
  ASSERT_TRUE(s.has_value());
  EXPECT_DOUBLE_EQ(s->value, 5.0 / 3);
  // Without one prompt: 1 or 2, logs ln 2 / 2 from their mean.
  const double half = std::tan(0.475 * M_PI) * std::log(2) / 2;
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
  EXPECT_EQ(speedup(pairs, Estimator::kLegacyDecode)->value, speedup_legacy(pairs)->value);
}

// An answer of the baseline without a token has speed 0 in the published mean; where only decoding
// counts, it has no speed.
TEST(SpeedupLegacy, AnAnswerWithoutTokens) {
  const std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {0, 10, 1, 10}};
  EXPECT_DOUBLE_EQ(speedup(pairs, Estimator::kLegacy)->value, (2 + 0.1) / 2 / (1.0 / 2));
  EXPECT_EQ(speedup(pairs, Estimator::kLegacy)->n, 2);
  EXPECT_DOUBLE_EQ(speedup(pairs, Estimator::kLegacyDecode)->value, 2);
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
