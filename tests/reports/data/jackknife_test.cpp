// Jackknife, units and estimators against the plain way to the same figures: equal to the bit.
#include "reports/data/jackknife.h"

#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "reports/data/best_set.h"
#include "reports/data/estimators.h"
#include "reports/data/max_t.h"
#include "tests/reports/data/designs.h"
#include "tests/reports/data/jackknife_reference.h"

namespace evalrun::tests {
namespace {

using base::Rng;
using reports::Design;
using reports::Estimate;
using reports::PromptPair;
using reports::RatioTerm;
using reports::Statistic;
using reports::Sums;

// Numbers of very different sizes, with some zeros of either sign.
double any_number(Rng& rng) {
  const uint64_t kind = rng.below(12);
  if (kind < 2) return kind == 0 ? 0.0 : -0.0;
  return (0.1 + rng.uniform()) * std::pow(10, static_cast<double>(rng.below(9)));
}

void expect_equal_estimate(const std::optional<Estimate>& fast,
                           const std::optional<Estimate>& plain) {
  ASSERT_EQ(fast.has_value(), plain.has_value());
  if (!plain) return;
  expect_equal(fast->value, plain->value);
  expect_equal(fast->interval, plain->interval);
  expect_equal(fast->n_eff, plain->n_eff);
  EXPECT_EQ(fast->n, plain->n);
}

// Also says whether there was something to compare.
bool expect_equal_jackknife(const std::vector<Sums>& prompts, const Design& design,
                            Statistic fast_statistic, Statistic plain_statistic) {
  const reports::Units units = units_of(prompts, design);
  const PlainUnits plain = plain_units(prompts, design);
  EXPECT_EQ(units.strata->of, plain.stratum);
  EXPECT_EQ(units.strata->sizes, plain.sizes);
  for (const size_t column : {0u, 1u, 3u}) {
    const double n_eff = plain.effective_count(column);
    expect_equal(units.effective_count(column), n_eff);
    expect_equal(units.degrees(n_eff), plain.degrees(n_eff));
  }
  const auto j = jackknife(units, fast_statistic);
  const auto expected = plain_jackknife(plain, plain_statistic);
  EXPECT_EQ(j.has_value(), expected.has_value());
  if (!j || !expected) return false;
  expect_equal(j->value, expected->value);
  EXPECT_EQ(j->deviations.size(), expected->deviations.size());
  for (size_t u = 0; u < std::min(j->deviations.size(), expected->deviations.size()); ++u)
    expect_equal(j->deviations[u], expected->deviations[u]);
  expect_equal(j->standard_error(), expected->standard_error());
  expect_equal(j->kurtosis_dof(), expected->kurtosis_dof());
  return true;
}

TEST(Jackknife, EqualsThePlainWayToTheBit) {
  int compared = 0;
  for_designs([&](const Design& design, size_t n, Rng& rng) {
    // Without zeros, with some, and with prompts of which there is nothing.
    for (const int zeros : {0, 1, 2}) {
      std::vector<Sums> prompts(n), of_one(n);
      for (size_t i = 0; i < n; ++i) {
        if (zeros == 2 && rng.below(3) == 0) continue;
        for (double& x : prompts[i])
          x = zeros == 0 ? 1 + static_cast<double>(rng.below(100'000)) / 7 : any_number(rng);
        of_one[i] = {prompts[i][0], prompts[i][1], 1, 1};
      }
      compared += expect_equal_jackknife(prompts, design, reports::log_ratio, reports::log_ratio);
      compared += expect_equal_jackknife(of_one, design, reports::log_quotient, reports::log_ratio);
      for (Sums& sums : of_one) sums[1] = sums[2];
      compared += expect_equal_jackknife(of_one, design, reports::quotient, reports::quotient);
      const Statistic third = [](const Sums& s) { return s[2] - 0.5 * s[3]; };
      compared += expect_equal_jackknife(prompts, design, third, third);
    }
  });
  EXPECT_GT(compared, 700) << "most have an estimate";
}

TEST(Jackknife, MeansEqualThePlainWayToTheBit) {
  int compared = 0;
  for_designs([&](const Design& design, size_t n, Rng& rng) {
    std::vector<double> logs, shares;
    for (size_t i = 0; i < n; ++i) {
      logs.push_back(rng.uniform() - 0.5);
      shares.push_back(rng.below(3) == 0 ? 1 : 0);
    }
    const std::vector<double> ones(n, 1), zeros(n, 0);
    for (const std::vector<double>& values : {logs, shares, ones, zeros}) {
      const auto fast = mean_interval(values, design);
      const auto plain = plain_mean_interval(values, design);
      ASSERT_EQ(fast.has_value(), plain.has_value());
      if (!plain) continue;
      ++compared;
      expect_equal(fast->interval, plain->interval);
      expect_equal(fast->standard_error, plain->standard_error);
      expect_equal(fast->dof, plain->dof);
      expect_equal(fast->n_eff, plain->n_eff);
    }
  });
  EXPECT_GT(compared, 300);
}

TEST(Estimators, EqualThePlainWayToTheBit) {
  int with_interval = 0;
  for_designs([&](const Design& design, size_t n, Rng& rng) {
    // Everything was decoded; or some prompts not, by one arm or by both.
    for (const bool whole : {true, false}) {
      std::vector<PromptPair> pairs(n);
      std::vector<RatioTerm> terms(n);
      for (size_t i = 0; i < n; ++i) {
        const uint64_t kind = whole ? 9 : rng.below(10);
        if (kind == 0) continue;
        const double tokens = 1 + static_cast<double>(rng.below(400));
        pairs[i] = {.base_tokens = tokens,
                    .base_ns = tokens * 1e7 * (1 + rng.uniform()),
                    .tokens = kind == 1 ? 0 : tokens,
                    .ns = kind == 1 ? 0 : tokens * 6e6 * (1 + rng.uniform())};
        terms[i] = {tokens, 1 + static_cast<double>(rng.below(50))};
      }
      const auto sum = speedup_sum(pairs, design);
      expect_equal_estimate(sum, plain_speedup_sum(pairs, design));
      expect_equal_estimate(ratio_of_sums(terms, design), plain_ratio_of_sums(terms, design));
      with_interval += sum && sum->interval;
      for (const reports::Estimator e :
           {reports::Estimator::kSum, reports::Estimator::kGeo, reports::Estimator::kLegacy,
            reports::Estimator::kLegacyDecode}) {
        SCOPED_TRACE(to_string(e));
        const auto estimate = speedup(pairs, e, design);
        const auto value = speedup_value(pairs, e);
        ASSERT_EQ(value.has_value(), estimate.has_value());
        if (value) expect_equal(*value, estimate->value);
      }
    }
  });
  EXPECT_GT(with_interval, 120);
}

TEST(MaxT, CovariancesAreAddedUpUnitByUnit) {
  Rng rng(9);
  for (const size_t m : {2u, 3u, 4u, 5u, 8u, 9u}) {
    std::vector<reports::Jackknife> estimates(m);
    for (reports::Jackknife& j : estimates)
      for (int u = 0; u < 37; ++u) j.deviations.push_back(rng.uniform() - 0.5);
    const auto covariance = [&](size_t a, size_t b) {
      double sum = 0;
      for (size_t u = 0; u < 37; ++u)
        sum += estimates[a].deviations[u] * estimates[b].deviations[u];
      return sum;
    };
    const reports::MaxT all(estimates, 36, 1);
    for (size_t a = 0; a < m; ++a)
      for (size_t b = 0; b < m; ++b)
        if (a != b)
          expect_equal(all.standard_error(a, b),
                       std::sqrt(covariance(a, a) + covariance(b, b) - 2 * covariance(a, b)));
  }
}

// Prompts that an arm decoded nothing of are left out of all arms, and of the design.
TEST(BestSet, IsThatOfThePromptsThatAllDecoded) {
  Rng rng(5);
  Design whole = of_groups(
      40, [](size_t i) { return static_cast<int>(i / 2); }, rng, 3);
  std::vector<std::vector<reports::TokensAndTime>> arms(3), kept(3);
  std::vector<size_t> places;
  for (size_t i = 0; i < 40; ++i) {
    const bool decoded = i % 7 != 3;
    if (decoded) places.push_back(i);
    for (size_t a = 0; a < arms.size(); ++a) {
      const double tokens = 1 + static_cast<double>(rng.below(100));
      arms[a].push_back({tokens, tokens * 1e6 * (1 + rng.uniform())});
      if (decoded) kept[a].push_back(arms[a].back());
      if (!decoded && a == 1) arms[a].back().ns = 0;
    }
  }
  const Design part = plain_part(whole, places);
  whole.strata = strata_of(whole, 40);
  for (const reports::Estimator e :
       {reports::Estimator::kSum, reports::Estimator::kGeo, reports::Estimator::kLegacyDecode}) {
    SCOPED_TRACE(to_string(e));
    const auto all = best_set(arms, e, 1, 0.95, whole), some = best_set(kept, e, 1, 0.95, part);
    ASSERT_TRUE(all && some);
    EXPECT_EQ(all->n, static_cast<int>(places.size()));
    EXPECT_EQ(all->fastest, some->fastest);
    EXPECT_EQ(all->member, some->member);
    expect_equal(all->n_eff, some->n_eff);
    for (size_t a = 0; a < arms.size(); ++a) {
      expect_equal(all->ranks[a].log_ratio, some->ranks[a].log_ratio);
      expect_equal(all->ranks[a].behind, some->ranks[a].behind);
    }
  }
}

}  // namespace
}  // namespace evalrun::tests
