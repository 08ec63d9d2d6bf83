#include "engine/base/multinomial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/stats.h"

namespace evalrun::base {
namespace {

// Upper tails of `draws` binomial draws against the exact ones, at the counts that 1/2, 1/10 and
// 1/1000 of them should reach: within four standard deviations.
void expect_binomial(int64_t n, double p) {
  constexpr int kDraws = 100'000;
  const BinomialDraws binomial(p);
  Rng rng(combine_seeds({static_cast<uint64_t>(n), static_cast<uint64_t>(p * 1e9)}));
  std::vector<int64_t> counts(kDraws);
  for (int64_t& k : counts) {
    k = binomial.draw(rng, n);
    ASSERT_TRUE(k >= 0 && k <= n);
  }
  const auto trials = static_cast<double>(n);
  const double sd = std::sqrt(trials * p * (1 - p));
  for (const double deviates : {-3.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0}) {
    const auto border = static_cast<int64_t>(std::ceil(trials * p + deviates * sd));
    if (border < 0 || border > n) continue;
    const double expected = binomial_upper_p(border, n, p);
    const auto above =
        std::count_if(counts.begin(), counts.end(), [&](int64_t k) { return k >= border; });
    EXPECT_NEAR(static_cast<double>(above), kDraws * expected,
                4 * std::sqrt(kDraws * expected * (1 - expected)) + 1)
        << n << " " << p << " " << border;
  }
}

TEST(BinomialDraws, FollowTheBinomialDistribution) {
  for (const int64_t n : {1, 7, 40, 200, 3000, 1'000'000, 100'000'000})
    for (const double p : {1e-7, 1e-3, 0.02, 0.06, 0.3, 0.5, 0.7, 0.95, 0.9999})
      expect_binomial(n, p);
}

TEST(BinomialDraws, EndsAreCertain) {
  Rng rng(1);
  EXPECT_EQ(BinomialDraws(0).draw(rng, 1000), 0);
  EXPECT_EQ(BinomialDraws(1).draw(rng, 1000), 1000);
  EXPECT_EQ(BinomialDraws(0.5).draw(rng, 0), 0);
}

TEST(Multinomial, SharesAllDrawsAmongTheCells) {
  const std::vector<double> prob = {0, 0.5, 0.25, 0, 0.125, 0.125, 1e-12, 0};
  const Multinomial law(prob);
  Rng rng(3);
  std::vector<int64_t> counts, sums(prob.size());
  constexpr int kTimes = 2000, kDraws = 500;
  for (int i = 0; i < kTimes; ++i) {
    law.draw(rng, kDraws, counts);
    ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), kDraws);
    for (size_t c = 0; c < prob.size(); ++c) sums[c] += counts[c];
  }
  for (size_t c = 0; c < prob.size(); ++c)
    EXPECT_NEAR(static_cast<double>(sums[c]), 1e6 * prob[c],
                4 * std::sqrt(1e6 * prob[c] * (1 - prob[c])) + 1e-3);
}

// The same numbers on every machine.
TEST(Multinomial, DrawsAreFixedBySeed) {
  Rng rng(5);
  std::vector<int64_t> counts;
  Multinomial(std::vector<double>{0.4, 0.3, 0.2, 0.1}).draw(rng, 1'000'000, counts);
  EXPECT_EQ(counts, (std::vector<int64_t>{400688, 299647, 199729, 99936}));
}

}  // namespace
}  // namespace evalrun::base
