// Which arms may be the fastest: by hand where it can be, and by simulation.
#include "reports/data/best_set.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/reports/data/coverage.h"

namespace evalrun::tests {
namespace {

using reports::best_set;
using reports::Estimator;
using reports::TokensAndTime;
using Arms = std::vector<std::vector<TokensAndTime>>;

// Arms whose ln speed differs from the first one's by `ahead` on average, and by `spread` more or
// less from prompt to prompt; prompts differ much more than that.
Arms arms_ahead(const std::vector<double>& ahead, double spread, int n) {
  Arms arms(ahead.size());
  for (int i = 0; i < n; ++i)
    for (size_t a = 0; a < ahead.size(); ++a) {
      const double sign = (i + static_cast<int>(a)) % 2 == 0 ? 1 : -1;
      const double own = a == 0 ? 0 : sign * spread;
      arms[a].push_back({100, 1e9 * std::exp(0.5 * std::sin(i) - ahead[a] - own)});
    }
  return arms;
}

std::vector<bool> members(const Arms& arms, Estimator e = Estimator::kSum) {
  return best_set(arms, e, 1)->member;
}

TEST(BestSet, LeavesOutWhatIsSlowerBeyondDoubt) {
  // Each interval against the first arm would be wide: paired, 5 % are clear.
  const Arms arms = arms_ahead({0, 0.30, 0.295, 0.25}, 0.02, 20);
  for (const Estimator e : {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy}) {
    EXPECT_EQ(members(arms, e), (std::vector<bool>{false, true, true, false})) << to_string(e);
    EXPECT_EQ(best_set(arms, e, 1)->fastest, 1u);
    EXPECT_EQ(best_set(arms, e, 1)->n, 20);
  }
}

TEST(BestSet, RanksOfWhatIsClear) {
  // The second and the third are as fast; 5 % are clear, 30 % anyhow.
  const Arms arms = arms_ahead({0, 0.30, 0.2999, 0.25}, 0.02, 20);
  const auto best = best_set(arms, Estimator::kGeo, 1);
  std::vector<std::pair<int, int>> ranks;
  for (const auto& r : best->ranks) ranks.emplace_back(r.lowest, r.highest);
  EXPECT_EQ(ranks, (std::vector<std::pair<int, int>>{{4, 4}, {1, 2}, {1, 2}, {3, 3}}));
  EXPECT_FALSE(best->ranks[1].behind);
  ASSERT_TRUE(best->ranks[3].behind);
  EXPECT_NEAR(best->ranks[3].log_ratio, -0.05, 0.001);
  EXPECT_LT(best->ranks[3].behind->hi, 0);
  EXPECT_GT(best->ranks[2].behind->hi, 0);
}

TEST(BestSet, TwoArmsHaveATwoSidedInterval) {
  const int n = 10;
  Arms arms(2);
  for (int i = 0; i < n; ++i) {
    arms[0].push_back({100, 1e9});
    arms[1].push_back({100, 1e9 * std::exp(-0.001 * (0.1 + (i % 2 == 0 ? 1 : -1)))});
  }
  const auto best = best_set(arms, Estimator::kGeo, 1);
  const double half = 0.001 * base::student_t_quantile(0.975, n - 1) * std::sqrt(1.0 / (n - 1));
  EXPECT_NEAR((best->ranks[0].behind->hi - best->ranks[0].behind->lo) / 2 / half, 1, 0.03);
}

TEST(BestSet, RanksHoldForAllArmsAtOnce) {
  for (const double steps : {0.0, 0.02}) {
    const Coverage c = cover_ranks({.arms = 6}, steps, 30, Estimator::kSum, 1'000);
    EXPECT_GT(c.share(), 0.93) << steps;
    EXPECT_LT(c.share(), 0.99) << steps << ", or the bound sees no correlation";
  }
}

TEST(BestSet, ArmsOfTheSameTimesShareTheirRanks) {
  const Arms arms(3, std::vector<TokensAndTime>(5, {100, 1e9}));
  const auto best = best_set(arms, Estimator::kSum, 1);
  for (const auto& r : best->ranks) {
    EXPECT_EQ(r.lowest, 1);
    EXPECT_EQ(r.highest, 3);
    EXPECT_EQ(r.log_ratio, 0);
  }
}

// Two arms, differences of the logs known: the bound is Student's, one-sided.
TEST(BestSet, OfTwoArmsIsATTest) {
  const int n = 10;
  for (const auto& [scale, inside] : {std::pair(0.97, true), {1.03, false}}) {
    // d_i = m + (-1)^i: mean m, sd sqrt(n / (n - 1)).
    const double error = std::sqrt(1.0 / (n - 1));
    const double m = scale * base::student_t_quantile(0.95, n - 1) * error;
    Arms arms(2);
    for (int i = 0; i < n; ++i) {
      arms[0].push_back({100, 1e9});
      arms[1].push_back({100, 1e9 * std::exp(-0.001 * (m + (i % 2 == 0 ? 1 : -1)))});
    }
    // The two rivals' correlation does not matter, only 4,000 draws do.
    EXPECT_EQ(members(arms, Estimator::kGeo)[0], inside) << scale;
  }
}

TEST(BestSet, EqualTimesAreEqual) {
  const Arms same = arms_ahead({0, 0}, 0, 5);
  EXPECT_EQ(members(same), (std::vector<bool>{true, true}));
  // Ahead by the same factor everywhere: no chance about it.
  Arms ahead = same;
  for (TokensAndTime& p : ahead[1]) p.ns /= 2;
  EXPECT_EQ(members(ahead, Estimator::kGeo), (std::vector<bool>{false, true}));
}

TEST(BestSet, NeedsTwoArmsAndTwoPromptsThatAllDecoded) {
  EXPECT_FALSE(best_set(arms_ahead({0}, 0, 5), Estimator::kSum, 1));
  EXPECT_FALSE(best_set(arms_ahead({0, 1}, 0, 1), Estimator::kSum, 1));
  Arms arms = arms_ahead({0, 0.1}, 0.01, 5);
  arms[1][0] = {0, 0};
  EXPECT_EQ(best_set(arms, Estimator::kSum, 1)->n, 4);
  for (int i = 1; i < 4; ++i) arms[0][static_cast<size_t>(i)].tokens = 0;
  EXPECT_FALSE(best_set(arms, Estimator::kSum, 1));
}

TEST(BestSet, FewLongAnswersCountAsFewPrompts) {
  // Three long answers decide the ratio of sums: ahead by 0.05, 0.20 and 0.35, that is t = 2.3. The
  // bound is 1.7 for 30 prompts, and 2.9 for three.
  Arms arms(2);
  for (int i = 0; i < 30; ++i) {
    const double scale = i < 3 ? 1e5 : 1, ahead = i < 3 ? 0.05 + 0.15 * i : 0.2;
    arms[0].push_back({100 * scale, 1e9 * scale});
    arms[1].push_back({100 * scale, 1e9 * scale * std::exp(-ahead)});
  }
  EXPECT_TRUE(members(arms)[0]);
  EXPECT_FALSE(members(arms, Estimator::kGeo)[0]);  // it counts them as the others
}

// Nominal 95 % (docs/measurement.md has all figures: 95.6 and 97.9 here). The standard error of 400
// experiments is 1.1 points: the lower bound is two of them below 95 %, the upper one would see a
// set that always holds all. A set for 50 % must hold the arm far less often, which a quarter of
// the experiments shows.
TEST(BestSet, HoldsTheFastestAsOftenAsItSays) {
  for (const int arms : {5, 20}) {
    const double share =
        cover_best_set({.arms = arms, .least_sd = 0.1, .largest_sd = 0.5}, 10, Estimator::kSum, 400)
            .share();
    EXPECT_GE(share, 0.925) << arms;
    EXPECT_LE(share, 0.997) << arms;
    EXPECT_LT(cover_best_set({.arms = arms}, 10, Estimator::kGeo, 100, 0.5).share(), 0.75);
  }
}

}  // namespace
}  // namespace evalrun::tests
