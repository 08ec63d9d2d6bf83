// engine/base/stats.h against closed forms and printed tables.
#include "engine/base/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::base {
namespace {

// The functions promise about 1e-12 relative; the values below carry more digits.
constexpr double kRelative = 1e-11;
void expect_close(double value, double expected) {
  EXPECT_NEAR(value, expected, kRelative * std::fabs(expected)) << "expected " << expected;
}

TEST(Stats, MeanMedianSd) {
  const std::vector<double> odd = {5, 1, 3}, even = {4, 1, 3, 2}, one = {7};
  EXPECT_DOUBLE_EQ(mean(odd), 3);
  EXPECT_DOUBLE_EQ(median(odd), 3);
  EXPECT_DOUBLE_EQ(median(even), 2.5);
  EXPECT_DOUBLE_EQ(median(one), 7);
  EXPECT_DOUBLE_EQ(sample_sd(odd), 2);  // deviations -2, 0, 2: 8 / 2
  EXPECT_DOUBLE_EQ(sample_sd(one), 0);
  EXPECT_THROW(mean({}), InternalError);
  EXPECT_THROW(median({}), InternalError);
}

TEST(Stats, NormalAgainstTable) {
  expect_close(normal_quantile(0.975), 1.959963984540054);
  expect_close(normal_quantile(0.05), -1.644853626951472);
  expect_close(normal_quantile(1e-6), -4.753424308822899);
  expect_close(normal_cdf(1), 0.841344746068543);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-15);
  EXPECT_THROW(normal_quantile(1), InternalError);
}

TEST(Stats, StudentQuantileAgainstTable) {
  // Two-sided 95 % and 99 % points, from the finite series for whole dof (Abramowitz &
  // Stegun 26.7.3-4).
  expect_close(student_t_quantile(0.975, 1), 12.706204736174698);
  expect_close(student_t_quantile(0.975, 2), 4.302652729749464);
  expect_close(student_t_quantile(0.975, 9), 2.2621571627982053);
  expect_close(student_t_quantile(0.975, 23), 2.0686576104190477);
  expect_close(student_t_quantile(0.995, 5), 4.032142983555212);
  expect_close(student_t_quantile(0.025, 9), -2.2621571627982053);
  // Many degrees of freedom: Cornish-Fisher expansion z + (z^3 + z) / (4 dof) + O(dof^-2).
  const double z = 1.959963984540054, dof = 1e6;
  EXPECT_NEAR(student_t_quantile(0.975, dof), z + (z * z * z + z) / (4 * dof), 1e-9);
}

TEST(Stats, StudentCdfClosedForms) {
  for (const double t : {-30.0, -3.0, -0.7, 0.0, 0.4, 2.0, 15.0}) {
    // dof 1: Cauchy. dof 2: algebraic.
    EXPECT_NEAR(student_t_cdf(t, 1), 0.5 + std::atan(t) / M_PI, 1e-14) << t;
    EXPECT_NEAR(student_t_cdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-14) << t;
  }
}

TEST(Stats, StudentQuantileInvertsCdf) {
  for (const double dof : {1.0, 3.0, 7.0, 19.0, 79.0, 479.0})
    for (const double p : {0.001, 0.05, 0.3, 0.6, 0.99})
      expect_close(student_t_cdf(student_t_quantile(p, dof), dof), p);
}

TEST(Stats, ChiSquareClosedForms) {
  for (const double x : {0.0, 0.1, 1.0, 3.0, 10.0, 80.0}) {
    expect_close(chi_square_p(x, 2), std::exp(-x / 2));
    expect_close(chi_square_p(x, 4), std::exp(-x / 2) * (1 + x / 2));
    expect_close(chi_square_p(x, 1), std::erfc(std::sqrt(x / 2)));
  }
}

TEST(Stats, ChiSquareAgainstTable) {  // upper 5 % and 1 % points
  expect_close(chi_square_p(3.841458820694124, 1), 0.05);
  expect_close(chi_square_p(18.307038053275146, 10), 0.05);
  expect_close(chi_square_p(135.80672317102676, 100), 0.01);
}

TEST(Stats, FisherFClosedForms) {
  EXPECT_EQ(fisher_f_p(0, 3, 8), 1);
  for (const double x : {0.1, 1.0, 3.0, 10.0})
    for (const double d : {1.0, 6.0, 40.0}) {
      expect_close(fisher_f_p(x, 2, d), std::pow(1 + 2 * x / d, -d / 2));
      expect_close(fisher_f_p(x, 1, d), 2 * student_t_cdf(-std::sqrt(x), d));
    }
}

TEST(Stats, BinomialTail) {
  expect_close(binomial_upper_p(0, 10, 0.3), 1);
  expect_close(binomial_upper_p(10, 10, 0.5), std::pow(0.5, 10));
  expect_close(binomial_upper_p(1, 20, 0.05), 1 - std::pow(0.95, 20));
  expect_close(binomial_upper_p(2, 3, 0.2), 3 * 0.04 * 0.8 + 0.008);
  EXPECT_EQ(binomial_upper_p(1, 5, 0), 0);
}

// The lady tasting tea: of 8 cups 4 have milk first, and she names 4, 3 or more of them right.
TEST(Stats, FishersExactTest) {
  expect_close(fisher_upper_p(4, 4, 0, 4), 1.0 / 70);
  expect_close(fisher_upper_p(3, 4, 1, 4), 17.0 / 70);
  expect_close(fisher_upper_p(0, 4, 4, 4), 1);
  expect_close(fisher_upper_p(2, 3, 5, 5), 1);  // fewer is not possible
  expect_close(fisher_upper_p(0, 10, 0, 10), 1);
}

TEST(Stats, TIntervalByHand) {
  // mean 2, sd 1, n 3: 2 -+ 4.302652729749464 / sqrt(3).
  const std::vector<double> x = {1, 2, 3};
  const auto t = t_interval(x, 0.95);
  ASSERT_TRUE(t.has_value());
  EXPECT_DOUBLE_EQ(t->mean, 2);
  EXPECT_EQ(t->n, 3);
  expect_close(t->interval.lo, 2 - 4.302652729749464 / std::sqrt(3.0));
  expect_close(t->interval.hi, 2 + 4.302652729749464 / std::sqrt(3.0));
  EXPECT_FALSE(t_interval(std::vector<double>{1}, 0.95).has_value());
  // 95 % of Wilson by hand for 0 of 10 and 8 of 10 (z = 1.959964): z^2 = 3.841459.
  const Interval none = wilson_interval(0, 10, 0.95), most = wilson_interval(0.8, 10, 0.95);
  EXPECT_EQ(none.lo, 0);
  EXPECT_EQ(wilson_interval(1, 10, 0.95).hi, 1);
  EXPECT_NEAR(none.hi, 3.841459 / 13.841459, 1e-6);
  EXPECT_NEAR(most.lo, 0.490162, 1e-6);
  EXPECT_NEAR(most.hi, 0.943318, 1e-6);
}

TEST(AdjustedP, ByHand) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005};
  EXPECT_EQ(adjusted_p(p, Adjustment::kNone), p);
  // Ascending: 4 x .005, 3 x .01, 2 x .03, then 1 x .04, which may not be less than the one before.
  const std::vector<double> holm = {0.03, 0.06, 0.06, 0.02};
  // 4/1 x .005, 4/2 x .01, 4/3 x .03 (= .04), 4/4 x .04.
  const std::vector<double> bh = {0.02, 0.04, 0.04, 0.02};
  for (size_t i = 0; i < p.size(); ++i) {
    EXPECT_DOUBLE_EQ(adjusted_p(p, Adjustment::kHolm)[i], holm[i]);
    EXPECT_DOUBLE_EQ(adjusted_p(p, Adjustment::kBenjaminiHochberg)[i], bh[i]);
  }
}

TEST(AdjustedP, NeverAboveOneAndNeverLessThanP) {
  const std::vector<double> high = {0.9, 0.8}, one = {0.3};
  EXPECT_EQ(adjusted_p(high, Adjustment::kHolm), (std::vector<double>{1, 1}));
  // 2 x .8 is more than the .9 after it.
  EXPECT_EQ(adjusted_p(high, Adjustment::kBenjaminiHochberg), (std::vector<double>{0.9, 0.9}));
  for (const auto how : {Adjustment::kNone, Adjustment::kHolm, Adjustment::kBenjaminiHochberg}) {
    EXPECT_EQ(adjusted_p(one, how), one);
    EXPECT_TRUE(adjusted_p({}, how).empty());
  }
}

}  // namespace
}  // namespace evalrun::base
