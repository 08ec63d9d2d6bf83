// The bootstrap against resamples that can be listed by hand, and against the t intervals.
#include "reports/data/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/reports/data/coverage.h"

namespace evalrun::reports {
namespace {

// Two prompts: both drawn once in a half of the resamples, one of them twice in a quarter each. So
// the ends of a 95 % interval are the prompts' own values, and the 30 % and 70 % points are the
// estimate from both.
void expect_ends(const std::vector<PromptPair>& pairs, Estimator estimator, double lo, double both,
                 double hi) {
  const auto wide = bootstrap_interval(pairs, estimator, {.seed = 1});
  ASSERT_TRUE(wide.has_value());
  EXPECT_DOUBLE_EQ(wide->lo, lo);
  EXPECT_DOUBLE_EQ(wide->hi, hi);
  const auto narrow = bootstrap_interval(pairs, estimator, {.seed = 1, .confidence = 0.4});
  EXPECT_DOUBLE_EQ(narrow->lo, both);
  EXPECT_DOUBLE_EQ(narrow->hi, both);
}

TEST(Bootstrap, TwoPromptsByHand) {
  // AR: speeds 1 and .5. Method: 2 and .5; so the prompts' speedups are 2 and 1.
  const std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {30, 60, 30, 60}};
  expect_ends(pairs, Estimator::kSum, 1, (40.0 / 65) / (40.0 / 70), 2);
  expect_ends(pairs, Estimator::kGeo, 1, std::sqrt(2), 2);
  expect_ends(pairs, Estimator::kLegacy, 1, 1.25 / 0.75, 2);
  const std::vector<RatioTerm> terms = {{10, 5}, {30, 20}};
  const auto ratio = bootstrap_interval(terms, {.seed = 1, .confidence = 0.4});
  EXPECT_DOUBLE_EQ(ratio->lo, 1.6);
  EXPECT_DOUBLE_EQ(ratio->hi, 1.6);
}

TEST(Bootstrap, ThreePromptsByHand) {
  // One prompt three times: 1/27 = 3.7 % each, more than the 2.5 % cut off.
  const std::vector<PromptPair> pairs = {{10, 10, 10, 5}, {10, 10, 10, 10}, {10, 10, 10, 4}};
  const auto i = bootstrap_interval(pairs, Estimator::kSum, {.seed = 1});
  EXPECT_DOUBLE_EQ(i->lo, 1);
  EXPECT_DOUBLE_EQ(i->hi, 2.5);
}

TEST(Bootstrap, AsWideAsTheClosedForm) {
  // The widths agree to O(1/n), where one end may be nearer; the ends of 10,000 resamples have a
  // standard error of about 2 % of the half width.
  tests::Normals normals(5);
  const auto pairs = tests::draw_prompts({.rho = -0.5, .cut = 400}, 1001, normals);
  for (const Estimator e :
       {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy, Estimator::kLegacyDecode}) {
    const auto closed = speedup(pairs, e)->interval, resampled = bootstrap_interval(pairs, e, {});
    EXPECT_NEAR(std::log(resampled->hi / resampled->lo) / std::log(closed->hi / closed->lo), 1,
                0.05)
        << to_string(e);
  }
}

TEST(Bootstrap, TheSeedDecides) {
  tests::Normals normals(6);
  const auto pairs = tests::draw_prompts({}, 30, normals);
  const auto once = bootstrap_interval(pairs, Estimator::kSum, {.seed = 3});
  const auto twice = bootstrap_interval(pairs, Estimator::kSum, {.seed = 3});
  const auto other = bootstrap_interval(pairs, Estimator::kSum, {.seed = 4});
  EXPECT_EQ(once->lo, twice->lo);
  EXPECT_EQ(once->hi, twice->hi);
  EXPECT_NE(once->lo, other->lo);
  EXPECT_EQ(seed_of("key"), seed_of("key"));
  EXPECT_NE(seed_of("ab"), seed_of("ba"));
  EXPECT_NE(seed_of(""), seed_of(std::string_view("\0", 1)));
}

TEST(Bootstrap, EdgeCases) {
  const PromptPair nothing = {0, 0, 0, 0}, two = {10, 10, 10, 5};
  const std::vector<PromptPair> one = {two}, half = {nothing, two}, none = {nothing, nothing};
  for (const Estimator e :
       {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy, Estimator::kLegacyDecode}) {
    EXPECT_FALSE(bootstrap_interval({}, e, {}).has_value());
    EXPECT_FALSE(bootstrap_interval(one, e, {}).has_value());
    EXPECT_FALSE(bootstrap_interval(none, e, {}).has_value());
  }
  // Resamples in which nothing was decoded have no speedup and are left out.
  const auto i = bootstrap_interval(half, Estimator::kSum, {});
  EXPECT_DOUBLE_EQ(i->lo, 2);
  EXPECT_DOUBLE_EQ(i->hi, 2);
  EXPECT_FALSE(bootstrap_interval(half, Estimator::kGeo, {}).has_value()) << "one prompt is left";
}

}  // namespace
}  // namespace evalrun::reports
