// Exact tests of a known distribution, alone and together, and what they would have found.
#include "engine/base/goodness_of_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/fit_power.h"
#include "engine/base/stats.h"

namespace evalrun::base {
namespace {

using Dist = std::vector<double>;
using Counts = std::vector<int64_t>;

Dist zipf(int n, double steepness) {
  Dist dist;
  double sum = 0;
  for (int i = 1; i <= n; ++i) sum += dist.emplace_back(std::pow(i, -steepness));
  for (double& p : dist) p /= sum;
  return dist;
}

Dist tempered(const Dist& dist, double temperature) {
  Dist out;
  double sum = 0;
  for (const double p : dist) sum += out.emplace_back(std::pow(p, 1 / temperature));
  for (double& p : out) p /= sum;
  return out;
}

double variation(const Dist& a, const Dist& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]) / 2;
  return sum;
}

// How many of `times` sets of `n` draws from `drawn` are refused at `level`.
int refused(const Dist& dist, const Dist& drawn, int64_t n, double level, int times) {
  const GoodnessOfFit fit(dist, n);
  const Multinomial law(drawn);
  Rng rng(11);
  Counts counts;
  int below = 0;
  for (int i = 0; i < times; ++i) {
    law.draw(rng, n, counts);
    below += fit.p(counts, static_cast<uint64_t>(i), 5000) < level;
  }
  return below;
}

TEST(GoodnessOfFit, IsTheExactTailOfTwoCells) {
  // 20 draws of two cells of 1/2: 15 to 5 or farther off, 2 P(X >= 15).
  const GoodnessOfFit fit(Dist{.5, .5}, 20);
  EXPECT_EQ(fit.cells(), 2);
  const double exact = 2 * binomial_upper_p(15, 20, .5);
  const double p = fit.p(Counts{15, 5}, 1);
  EXPECT_NEAR(p, exact, 4 * exact / std::sqrt(GoodnessOfFit::kEnough));
  EXPECT_EQ(fit.p(Counts{10, 10}, 1), 1);
  EXPECT_EQ(fit.p(Counts{15, 5}, 1), p) << "the same numbers each time";
  // 20 to 0: 2 in a million.
  EXPECT_LE(fit.p(Counts{20, 0}, 1), 4e-5);
}

TEST(GoodnessOfFit, JoinsRareTokensInTheOrderOfTheirProbabilities) {
  // 100 draws: two tokens expected 3 times are one cell of 6; one expected once is the rest.
  const GoodnessOfFit fit(Dist{.03, .5, .43, .01, .03}, 100);
  EXPECT_EQ(fit.cells(), 3);
  EXPECT_EQ(fit.cell_probs().size(), 4u);
  EXPECT_DOUBLE_EQ(fit.cell_probs()[2], .06);
  EXPECT_DOUBLE_EQ(fit.cell_probs()[3], .01);
  EXPECT_LT(fit.p(Counts{3, 45, 39, 10, 3}, 1), 1e-5) << "ten where one is expected";
  EXPECT_GT(fit.p(Counts{3, 50, 44, 0, 3}, 1), 0.5);
  // However many tokens there are, cells are few.
  const GoodnessOfFit many(zipf(50'000, 1), 100'000'000);
  EXPECT_LE(many.cells(), GoodnessOfFit::kMostCells);
  EXPECT_GT(many.cells(), GoodnessOfFit::kMostCells / 2);
}

TEST(GoodnessOfFit, OneTokenThatIsAllButCertain) {
  const GoodnessOfFit fit(Dist{.99, .005, .005}, 200);
  EXPECT_EQ(fit.cells(), 1);
  EXPECT_FALSE(fit.certain());
  EXPECT_EQ(fit.p(Counts{200, 0, 0}, 1), 1);
  EXPECT_DOUBLE_EQ(fit.p(Counts{192, 8, 0}, 1), binomial_upper_p(8, 200, .01));
  const GoodnessOfFit certain(Dist{1, 0}, 200);
  EXPECT_TRUE(certain.certain());
  EXPECT_EQ(certain.p(Counts{200, 0}, 1), 1);
  EXPECT_EQ(certain.p(Counts{199, 1}, 1), 0) << "what cannot occur must not";
  EXPECT_EQ(GoodnessOfFit(Dist{.5, .5, 0}, 30).p(Counts{15, 14, 1}, 1), 0);
}

// The chi-square distribution refuses up to three times as many in this tail.
TEST(GoodnessOfFit, HoldsItsLevel) {
  for (const Dist& dist : {zipf(200, 1.1), zipf(40, 2.5), Dist(64, 1.0 / 64), Dist{.98, .02}}) {
    const int found = refused(dist, dist, 200, 0.01, 2000);
    EXPECT_LE(found, 20 + 18) << "four standard deviations";
    EXPECT_LE(refused(dist, dist, 200, 0.001, 2000), 2 + 6);
  }
  EXPECT_GE(refused(zipf(200, 1.1), zipf(200, 1.1), 200, 0.01, 2000), 20 - 18);
}

TEST(GoodnessOfFit, FindsAWrongTemperature) {
  const Dist dist = zipf(300, 1.1), drawn = tempered(dist, 0.93);
  EXPECT_GT(refused(dist, drawn, 2000, 0.001, 100), 95);
}

// ---- Joint ----

TEST(JointP, OneTestIsItself) {
  EXPECT_DOUBLE_EQ(joint_p({}), 1);
  for (const double p : {1e-9, 1e-4, 0.01, 0.3, 0.9, 1.0}) {
    EXPECT_NEAR(joint_p(std::vector<TestP>{{p, true}}), p, 1e-12);
    EXPECT_NEAR(joint_p(std::vector<TestP>{{p, false}}), p, 1e-12);
  }
  EXPECT_EQ(joint_p(std::vector<TestP>{{0, true}, {.5, true}}), 0);
}

TEST(JointP, LiesBetweenTheSmallerAndTwiceIt) {
  const auto joined = [](const std::vector<double>& ps) {
    std::vector<TestP> tests;
    for (const double p : ps) tests.push_back({p, true});
    return joint_p(tests);
  };
  // Bonferroni 5e-5; Fisher gives 1.46e-3.
  const double one = joined({1e-5, .5, .5, .5, .5});
  EXPECT_GT(one, 5e-5);
  EXPECT_LT(one, 1e-4);
  // Sum of ln: 4 ln .01 = -18.42; P(X >= 36.84) with 8 degrees of freedom, 1.231e-5.
  const double many = joined({.01, .01, .01, .01});
  EXPECT_GT(many, 1.231e-5);
  EXPECT_LT(many, 2.462e-5);
}

// Uniform p-values of independent tests: joint_p is uniform, whatever the tests.
TEST(JointP, IsUniform) {
  Rng rng(8);
  for (const auto& [n, spread] : {std::pair{2, 2}, {7, 7}, {7, 4}, {12, 0}, {40, 40}}) {
    constexpr int kTimes = 40'000;
    const double levels[] = {0.001, 0.01, 0.1, 0.5};
    int below[4] = {};
    for (int i = 0; i < kTimes; ++i) {
      std::vector<TestP> tests;
      for (int t = 0; t < n; ++t) tests.push_back({1 - rng.uniform(), t < spread});
      const double p = joint_p(tests);
      for (int l = 0; l < 4; ++l) below[l] += p < levels[l];
    }
    for (int l = 0; l < 4; ++l) {
      const double expected = kTimes * levels[l];
      // Where t reaches 1 the p is 1: at most levels below that are exact.
      EXPECT_NEAR(below[l], expected, 4 * std::sqrt(expected * (1 - levels[l])))
          << n << " " << spread << " " << levels[l];
    }
  }
}

// ---- Power ----

// What is said to be found is found, by the test itself.
TEST(SmallestVariationFound, IsFoundByTheTestsThemselves) {
  const Dist dist = zipf(100, 1.3);
  const std::vector<GoodnessOfFit> fits = {GoodnessOfFit(dist, 2000)};
  const double smallest = smallest_variation_found(fits, 0.001, 1);
  EXPECT_GT(smallest, 0.01);
  EXPECT_LT(smallest, 0.15);
  // To the tail, by hand.
  double head = 0;
  size_t n = 0;
  while (head < 0.5) head += dist[n++];
  const auto moved = [&](double d) {
    Dist out = dist;
    for (size_t i = 0; i < out.size(); ++i) out[i] *= i < n ? 1 - d / head : 1 + d / (1 - head);
    return out;
  };
  EXPECT_NEAR(variation(dist, moved(smallest)), smallest, 1e-12);
  EXPECT_GE(refused(dist, moved(smallest), 2000, 0.001, 100), 89);
  // Half of it is not, at least not between two halves that are chosen at random.
  Rng rng(3);
  int found = 0;
  for (int i = 0; i < 60; ++i) {
    Dist out = dist;
    std::vector<bool> in(dist.size());
    double share = 0;
    for (size_t k = 0; k < in.size(); ++k)
      if ((in[k] = rng.uniform() < 0.5)) share += dist[k];
    for (size_t k = 0; k < in.size(); ++k)
      out[k] *= in[k] ? 1 - smallest / 2 / share : 1 + smallest / 2 / (1 - share);
    found += refused(dist, out, 2000, 0.001, 1);
  }
  EXPECT_LT(found, 36);
}

TEST(SmallestVariationFound, FallsWithTheDraws) {
  const Dist dist = zipf(60, 1.3);
  double last = 1;
  for (const int64_t n : {200, 5000, 100'000, 10'000'000}) {
    const std::vector<GoodnessOfFit> fits = {GoodnessOfFit(dist, n), GoodnessOfFit(dist, n)};
    const double smallest = smallest_variation_found(fits, 0.001, 1);
    EXPECT_LT(smallest, last / 2) << n;
    last = smallest;
  }
  EXPECT_LT(last, 2e-3);
}

TEST(SmallestVariationFound, PlacesWithoutRoom) {
  EXPECT_EQ(smallest_variation_found({}, 0.001, 1), 1);
  // A token of probability 0 once in n draws with 95 %: 3 / n.
  const std::vector<GoodnessOfFit> certain = {GoodnessOfFit(Dist{1, 0}, 1'000'000)};
  EXPECT_NEAR(smallest_variation_found(certain, 0.001, 1), 3e-6, 2e-7);
  // Half of 1 - 0.999 is all that may be moved, and 100 draws do not see it.
  const std::vector<GoodnessOfFit> nearly = {GoodnessOfFit(Dist{.999, .001}, 100)};
  EXPECT_EQ(smallest_variation_found(nearly, 0.001, 1), 1);
  // A place that is all but certain shows nothing of the other.
  const std::vector<GoodnessOfFit> both = {GoodnessOfFit(zipf(60, 1.3), 2000),
                                           GoodnessOfFit(Dist{.9999, .0001}, 2000)};
  const std::vector<GoodnessOfFit> one = {both[0]};
  EXPECT_NEAR(smallest_variation_found(both, 0.001, 1) / smallest_variation_found(one, 0.001, 1),
              1.05, 0.12);
}

}  // namespace
}  // namespace evalrun::base
