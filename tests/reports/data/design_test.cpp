// Which prompts are units and strata, by what an interval is asked.
#include "reports/data/design.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/rng.h"
#include "reports/data/bootstrap.h"
#include "reports/data/estimators.h"
#include "reports/data/jackknife.h"
#include "tests/reports/data/jackknife_reference.h"

namespace evalrun::reports {
namespace {

struct Named {
  const char *task, *category, *group;
};

Design design(Scope scope, const std::vector<Named>& named) {
  std::vector<PromptInfo> prompts;
  std::vector<int64_t> ids;
  for (const Named& n : named) {
    PromptInfo p;
    p.id = static_cast<int64_t>(100 + prompts.size());
    p.key = std::to_string(p.id);
    p.task = n.task, p.category = n.category, p.group = n.group;
    ids.push_back(p.id);
    prompts.push_back(p);
  }
  return PromptDesigns(prompts, scope).of(ids);
}

using Ints = std::vector<int>;
constexpr Scope kScopes[] = {Scope::kSameKind, Scope::kNewKinds, Scope::kFixedSet};

TEST(Design, PromptsOnTheirOwnNeedNone) {
  for (const Scope scope : kScopes)
    EXPECT_TRUE(design(scope, {{"a", "", ""}, {"a", "", ""}, {"a", "", "g"}}).empty());
}

TEST(Design, CategoriesAreStrataOrClusters) {
  const std::vector<Named> prompts = {
      {"a", "x", ""}, {"a", "y", ""}, {"a", "x", ""}, {"a", "y", ""}};
  const Design same = design(Scope::kSameKind, prompts);
  EXPECT_EQ(same.unit, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(same.stratum, (Ints{0, 1, 0, 1}));
  const Design others = design(Scope::kNewKinds, prompts);
  EXPECT_EQ(others.unit, (Ints{0, 1, 0, 1}));
  EXPECT_EQ(others.stratum, (Ints{0, 0}));
  EXPECT_TRUE(design(Scope::kFixedSet, prompts).empty());
}

TEST(Design, AGroupIsAUnitOfItsDataSet) {
  const std::vector<Named> prompts = {
      {"a", "", "1"}, {"a", "", "1"}, {"a", "", "2"}, {"a", "", "2"}, {"a", "", ""}};
  for (const Scope scope : {Scope::kSameKind, Scope::kNewKinds}) {
    EXPECT_EQ(design(scope, prompts).unit, (Ints{0, 0, 1, 1, 2}));
    EXPECT_EQ(design(scope, prompts).stratum, (Ints{0, 0, 0}));
  }
  // The problem of the same number of another set is another problem.
  EXPECT_EQ(design(Scope::kSameKind, {{"a", "", "1"}, {"b", "", "1"}}).units(), 2u);
  EXPECT_EQ(design(Scope::kNewKinds, {{"a", "", "1"}, {"a", "", "2"}, {"b", "", ""}}).unit,
            (Ints{0, 0, 1}))
      << "several data sets are kinds";
}

TEST(Design, AGroupOfAllDataSetsIsOneUnit) {
  const std::vector<Named> prompts = {
      {"a", "", "/p/1"}, {"b", "", "/p/1"}, {"a", "", "/p/2"}, {"b", "", "2"}};
  const Design same = design(Scope::kSameKind, prompts);
  EXPECT_EQ(same.unit, (Ints{0, 0, 1, 2}));
  EXPECT_EQ(same.stratum, (Ints{0, 1, 2})) << "of both sets, of a, of b";
  EXPECT_EQ(design(Scope::kNewKinds, prompts).unit, (Ints{0, 1, 0, 1})) << "the sets are kinds";
  EXPECT_TRUE(design(Scope::kSameKind, {{"a", "", "/p/1"}, {"a", "", "/p/2"}}).empty());
}

TEST(Design, AGroupOfTwoCategoriesIsOfNeither) {
  const Design d = design(Scope::kSameKind, {{"a", "x", "1"},
                                             {"a", "y", "1"},
                                             {"a", "x", ""},
                                             {"a", "x", ""},
                                             {"a", "y", "2"},
                                             {"a", "x", "2"}});
  EXPECT_EQ(d.unit, (Ints{0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(d.stratum, (Ints{0, 1, 1, 0}));
}

TEST(Design, APartKeepsWhatBelongsTogether) {
  const Design d = design(Scope::kSameKind,
                          {{"a", "x", "1"}, {"a", "x", "1"}, {"a", "y", "2"}, {"a", "y", "2"}});
  const std::vector<size_t> places = {1, 2, 3};
  Design room;
  const Design& part = d.of(places, room);
  EXPECT_EQ(part.unit, (Ints{0, 1, 1}));
  EXPECT_EQ(part.stratum, (Ints{0, 1}));
  EXPECT_FALSE(part.strata) << "those of all prompts are others";
  const std::vector<size_t> all = {0, 1, 2, 3};
  EXPECT_EQ(&d.of(all, room), &d);
}

// Prompts of one to three data sets, some with categories and groups, a group of all sets at times.
std::vector<PromptInfo> drawn_prompts(base::Rng& rng) {
  const uint64_t tasks = 1 + rng.below(3), categories = rng.below(4), groups = rng.below(9);
  std::vector<PromptInfo> prompts(rng.below(40));
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptInfo& p = prompts[i];
    p.id = static_cast<int64_t>(5 + 2 * i);
    p.key = std::to_string(i);
    p.task = std::to_string(rng.below(tasks));
    if (rng.below(1 + categories) > 0) p.category = std::to_string(rng.below(categories));
    if (rng.below(1 + groups) > 0)
      p.group = (rng.below(4) == 0 ? "/" : "") + std::to_string(rng.below(groups));
  }
  return prompts;
}

std::vector<int64_t> some_ids(const std::vector<PromptInfo>& prompts, base::Rng& rng) {
  const uint64_t left_out = rng.below(3);
  std::vector<int64_t> ids;
  for (const PromptInfo& p : prompts)
    if (rng.below(4) >= left_out) ids.push_back(p.id);
  return ids;
}

// Many lists of prompts in turn, so that some are remembered and some are made again.
TEST(Design, IsThatOfThePlainWay) {
  base::Rng rng(4);
  int made = 0;
  for (int run = 0; run < 60; ++run)
    for (const Scope scope : kScopes) {
      const std::vector<PromptInfo> prompts = drawn_prompts(rng);
      const PromptDesigns designs(prompts, scope);
      std::vector<std::vector<int64_t>> lists(1 + rng.below(24));
      for (std::vector<int64_t>& ids : lists) ids = some_ids(prompts, rng);
      for (int asked = 0; asked < 40; ++asked) {
        const std::vector<int64_t>& ids = lists[rng.below(lists.size())];
        const Design plain = tests::plain_design(prompts, scope, ids);
        const Design& d = designs.of(ids);
        ASSERT_EQ(d.unit, plain.unit);
        ASSERT_EQ(d.stratum, plain.stratum);
        ASSERT_EQ(d.strata != nullptr, !d.empty());
        if (d.empty()) continue;
        ++made;
        const auto strata = strata_of(plain, ids.size());
        ASSERT_EQ(d.strata->of, strata->of);
        ASSERT_EQ(d.strata->sizes, strata->sizes);
        ASSERT_EQ(d.strata->one_each, strata->one_each);
        ASSERT_EQ(d.strata->n_eff, strata->n_eff);
      }
    }
  EXPECT_GT(made, 1200);
}

TEST(Units, SingleOnesArePooled) {
  const auto strata = [&](const Ints& of) {
    Design d;
    for (size_t i = 0; i < of.size(); ++i) d.unit.push_back(static_cast<int>(i));
    d.stratum = of;
    return strata_of(d, of.size())->of;
  };
  EXPECT_EQ(strata({5, 6, 5, 6}), (Ints{0, 1, 0, 1}));
  EXPECT_EQ(strata({5, 6, 5, 7}), (Ints{0, 1, 0, 1})) << "two single ones together";
  EXPECT_EQ(strata({5, 5, 5, 7, 6, 6}), (Ints{0, 0, 0, 1, 1, 1})) << "one: to the smallest";
  EXPECT_EQ(strata({1, 2, 3}), (Ints{0, 0, 0}));
  EXPECT_EQ(strata({4}), (Ints{0}));
}

TEST(MeanInterval, OfStrataByHand) {
  // 1, 3 | 10, 14, 18: variances 2 and 16, of the mean (2 * 2 + 3 * 16) / 25 = 2.08; 5 - 2 dof.
  const std::vector<double> values = {1, 10, 3, 14, 18};
  const Design d = {.unit = {0, 1, 2, 3, 4}, .stratum = {0, 1, 0, 1, 1}};
  const auto m = mean_interval(values, d);
  EXPECT_NEAR(m->standard_error, std::sqrt(2.08), 1e-12);
  EXPECT_DOUBLE_EQ(m->dof, 3);
  EXPECT_NEAR((m->interval.lo + m->interval.hi) / 2, 9.2, 1e-12);
}

TEST(MeanInterval, OfClustersByHand) {
  // Means 2, 6 and 7 of two each: of the mean sd / sqrt(3), 2 degrees of freedom.
  const std::vector<double> values = {1, 3, 5, 7, 6, 8};
  const Design d = {.unit = {0, 0, 1, 1, 2, 2}, .stratum = {0, 0, 0}};
  const auto m = mean_interval(values, d);
  EXPECT_NEAR(m->standard_error, std::sqrt(7.0 / 3), 1e-12);
  EXPECT_DOUBLE_EQ(m->dof, 2);
  EXPECT_DOUBLE_EQ(m->n_eff, 3);
}

TEST(Design, RepeatingEveryPromptInItsGroupAddsNothing) {
  std::vector<PromptPair> once;
  for (int i = 0; i < 12; ++i) {
    const double tokens = 20 + 7 * (i % 5);
    once.push_back({tokens, tokens, tokens, tokens / (1.5 + 0.1 * (i % 4))});
  }
  std::vector<PromptPair> thrice;
  Design groups;
  for (int i = 0; i < 12; ++i)
    for (int copy = 0; copy < 3; ++copy)
      thrice.push_back(once[static_cast<size_t>(i)]), groups.unit.push_back(i);
  groups.stratum.assign(12, 0);
  for (const Estimator e : {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy}) {
    SCOPED_TRACE(to_string(e));
    const auto a = speedup(once, e), b = speedup(thrice, e, groups);
    EXPECT_NEAR(a->value, b->value, 1e-12);
    EXPECT_NEAR(a->interval->lo, b->interval->lo, 1e-9);
    EXPECT_NEAR(a->interval->hi, b->interval->hi, 1e-9);
    EXPECT_NEAR(a->n_eff, b->n_eff, 1e-9);
    EXPECT_LT(speedup(thrice, e)->interval->hi, b->interval->hi);
    const auto x = bootstrap_interval(once, e, {.seed = 3}),
               y = bootstrap_interval(thrice, e, {.seed = 3}, groups);
    EXPECT_NEAR(x->hi, y->hi, 1e-9);
  }
}

TEST(Design, OneClusterHasNoInterval) {
  const std::vector<PromptPair> pairs(6, {10, 10, 10, 5});
  const Design one = {.unit = Ints(6, 0), .stratum = {0}};
  for (const Estimator e : {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy}) {
    const auto s = speedup(pairs, e, one);
    EXPECT_NEAR(s->value, 2, 1e-12);
    EXPECT_FALSE(s->interval) << to_string(e);
    EXPECT_EQ(s->n_eff, 1);
    EXPECT_FALSE(bootstrap_interval(pairs, e, {}, one));
  }
  EXPECT_FALSE(mean_interval(std::vector<double>{1, 2}, {.unit = {0, 0}, .stratum = {0}}));
}

Design batches(Scope scope, const std::vector<Named>& named, int64_t batch,
               std::vector<size_t> of = {}) {
  std::vector<PromptInfo> prompts;
  for (const Named& n : named) {
    PromptInfo p;
    p.id = static_cast<int64_t>(100 + prompts.size());
    p.key = std::to_string(p.id);
    p.task = n.task, p.category = n.category, p.group = n.group;
    prompts.push_back(p);
  }
  if (of.empty())
    for (size_t i = 0; i < prompts.size(); ++i) of.push_back(i);
  std::vector<int64_t> ids;
  for (const size_t i : of) ids.push_back(prompts[i].id);
  return PromptDesigns(prompts, scope).of(ids, batch);
}

TEST(Design, PromptsDecodedTogetherAreAUnit) {
  const std::vector<Named> five(5, {"a", "", ""});
  for (const Scope scope : {Scope::kSameKind, Scope::kFixedSet}) {
    EXPECT_EQ(batches(scope, five, 2).unit, (Ints{0, 0, 1, 1, 2})) << to_string(scope);
    EXPECT_EQ(batches(scope, five, 2).stratum, (Ints{0, 0, 0})) << to_string(scope);
    EXPECT_TRUE(batches(scope, five, 1).empty());
  }
  // By their numbers in the run, whatever of it takes part.
  EXPECT_EQ(batches(Scope::kSameKind, five, 2, {0, 2, 3}).unit, (Ints{0, 1, 1}));
  // Within a data set, whole or in parts.
  EXPECT_EQ(
      batches(Scope::kFixedSet, {{"a", "", ""}, {"b", "", ""}, {"a", "", ""}, {"b", "", ""}}, 2)
          .unit,
      (Ints{0, 1, 0, 1}));
  EXPECT_EQ(batches(Scope::kFixedSet,
                    {{"a / x", "", ""}, {"a / y", "", ""}, {"a / x", "", ""}, {"a / x", "", ""}}, 2)
                .unit,
            (Ints{0, 0, 1, 1}));
}

TEST(Design, BatchesAndGroupsThatMeetAreOneUnit) {
  const std::vector<Named> prompts = {{"a", "", "1"}, {"a", "", ""}, {"a", "", ""},
                                      {"a", "", "1"}, {"a", "", ""}, {"a", "", ""}};
  EXPECT_EQ(batches(Scope::kSameKind, prompts, 2).unit, (Ints{0, 0, 0, 0, 1, 1}));
  // Of the fixed set groups are nothing.
  EXPECT_EQ(batches(Scope::kFixedSet, prompts, 2).unit, (Ints{0, 0, 1, 1, 2, 2}));
}

TEST(Design, BatchesOfSeveralCategoriesAreStrataOfTheirOwn) {
  const std::vector<Named> prompts = {{"a", "x", ""}, {"a", "x", ""}, {"a", "x", ""},
                                      {"a", "y", ""}, {"a", "y", ""}, {"a", "y", ""}};
  EXPECT_EQ(batches(Scope::kSameKind, prompts, 2).stratum, (Ints{0, 1, 2}));
  EXPECT_EQ(batches(Scope::kNewKinds, prompts, 2).unit, (Ints{0, 0, 0, 1, 1, 1}));
}

TEST(Scope, OldNameOfTheSameKind) {
  EXPECT_EQ(scope_named("population"), Scope::kSameKind);
  for (const Scope s : kScopes) EXPECT_EQ(scope_named(to_string(s)), s);
}

}  // namespace
}  // namespace evalrun::reports
