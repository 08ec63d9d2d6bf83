// As many repeats of both sides, and what stored sessions say about each other.
#include "reports/gate/equal_repeats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "reports/gate/session_spread.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {
namespace {

TEST(ExpectedFastest, IsTheMeanOverAllChoices) {
  EXPECT_DOUBLE_EQ(expected_fastest({7}, 1), 7);
  EXPECT_DOUBLE_EQ(expected_fastest({3, 1, 2}, 3), 1);
  EXPECT_DOUBLE_EQ(expected_fastest({3, 1, 2}, 1), 2);
  // By hand: of six pairs of 1, 2, 4, 8, three begin with 1, two with 2, one with 4.
  EXPECT_DOUBLE_EQ(expected_fastest({8, 1, 4, 2}, 2), (3 * 1 + 2 * 2 + 4) / 6.0);
  base::Rng rng(1);
  std::vector<double> times(9);
  for (double& t : times) t = rng.uniform();
  double sum = 0;
  for (size_t i = 0; i < 9; ++i)
    for (size_t j = i + 1; j < 9; ++j)
      for (size_t k = j + 1; k < 9; ++k) sum += std::min({times[i], times[j], times[k]});
  EXPECT_NEAR(expected_fastest(times, 3), sum / 84, 1e-12);
}

class EqualRepeats : public ::testing::Test {
 protected:
  EqualRepeats() : store_(folder_.file("a.db")) {
    run_.arms = tests::usual_arms();
    run_.prompts_per_task = 24;
  }
  // Each method's time is `factor` times the usual one, with noise.
  int64_t measure(const std::string& key, int repeats, double factor = 1, double noise = 0.1) {
    run_.key = key, run_.repeats = repeats;
    auto rng = std::make_shared<base::Rng>(std::hash<std::string>{}(key));
    run_.change = [=](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
      const double f = (a.role == "method" ? factor : 1) * (1 + noise * (rng->uniform() - 0.5));
      g.turns[0].decode_ns = std::llround(f * static_cast<double>(g.turns[0].decode_ns));
    };
    return tests::fill(store_, run_);
  }
  static double sum_of_fastest(const RunData& data) {
    double sum = 0;
    for (const SampleRow& s : data.samples) sum += s.fastest_ns;
    return sum;
  }
  tests::TempFolder folder_;
  results::ResultStore store_;
  tests::SyntheticRun run_;
};

TEST_F(EqualRepeats, NineRepeatsAreNotFasterThanThree) {
  RunData three = load_run(store_, measure("three", 3)),
          nine = load_run(store_, measure("nine", 9));
  const auto gain = [&] { return sum_of_fastest(three) / sum_of_fastest(nine) - 1; };
  EXPECT_GT(gain(), 0.01) << "by the choice of the fastest alone";
  const double before = sum_of_fastest(three);
  equalise_repeats({{&store_, &three}, {&store_, &nine}});
  EXPECT_NEAR(gain(), 0, 0.005);
  EXPECT_EQ(sum_of_fastest(three), before) << "the side with fewer stays";
  // Nothing to do where both have as many.
  RunData other = load_run(store_, measure("other", 3));
  const double was = sum_of_fastest(other);
  equalise_repeats({{&store_, &three}, {&store_, &other}});
  EXPECT_EQ(sum_of_fastest(other), was);
}

TEST_F(EqualRepeats, SessionsOfOneThingTellTheirSpread) {
  const int64_t first = measure("one", 2, 1, 0);
  EXPECT_FALSE(session_spread(store_, sessions_like(store_, first)));
  measure("two", 2, 1.02, 0);
  measure("three", 2, 0.98, 0);
  const std::vector<int64_t> sessions = sessions_like(store_, first);
  ASSERT_EQ(sessions.size(), 3u);
  EXPECT_NEAR(*session_spread(store_, sessions), 0.02, 0.0005);
  // Two standard deviations of a difference, with two degrees of freedom: (1 - 2 / sqrt(6)) / 2.
  EXPECT_NEAR(session_change_p(0.02 * 2 * std::sqrt(2.0), 0.02, 3), (1 - 2 / std::sqrt(6.0)) / 2,
              1e-12);
  EXPECT_EQ(session_change_p(0.001, 0, 3), 0);
  EXPECT_EQ(session_change_p(0, 0, 3), 1);
  // Without spread the margin itself; more of it, or fewer sessions, ask for more.
  EXPECT_NEAR(detectable_slowdown(0, 1, 5, 0.03, 0.05), 0.03, 1e-12);
  EXPECT_GT(detectable_slowdown(0.01, 1, 5, 0.03, 0.05), 0.05);
  EXPECT_GT(detectable_slowdown(0.01, 1, 5, 0.03, 0.05),
            detectable_slowdown(0.01, 5, 5, 0.03, 0.05));
  EXPECT_LT(detectable_slowdown(0.003, 8, 8, 0.03, 0.05), 0.05);
}

}  // namespace
}  // namespace evalrun::reports
