// Differences of several arms from a control: by hand where it can be, and by simulation.
#include "reports/data/control_differences.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reports/data/max_t.h"
#include "tests/reports/data/coverage.h"

namespace evalrun::tests {
namespace {

using reports::control_differences;
using reports::ControlDifference;
using reports::Design;
using reports::Spread;
using OneArm = std::vector<std::optional<double>>;
using ManyArms = std::vector<OneArm>;

ControlDifference difference_alone(const OneArm& arm, const Design& design = {}) {
  return control_differences(ManyArms{arm}, 1, 0.95, design)[0].value();
}
double half_width(const ControlDifference& d) { return (d.interval->hi - d.interval->lo) / 2; }
bool leaves_0_out(const ControlDifference& d) { return d.interval->lo > 0 || d.interval->hi < 0; }

void expect_value_alone(const ControlDifference& d, Spread spread) {
  EXPECT_EQ(d.spread, spread);
  EXPECT_FALSE(d.interval);
  EXPECT_FALSE(d.p);
}

// 1 and -1 in blocks of `block` prompts; blocks of other powers of two are uncorrelated.
OneArm blocks(int n, int block, double around = 0) {
  OneArm v;
  for (int i = 0; i < n; ++i) v.push_back(around + (i / block % 2 == 0 ? 1 : -1));
  return v;
}

TEST(ControlDifferences, OneArmHasStudentsT) {
  // Mean -1/3, standard error 2/3, t = -1/2; of two degrees of freedom, F(t) = (1 + t / sqrt(2 +
  // t^2)) / 2.
  const ControlDifference d = difference_alone({-1, 1, -1});
  EXPECT_DOUBLE_EQ(d.value, -1.0 / 3);
  EXPECT_NEAR(d.interval->hi, -1.0 / 3 + 4.302652729911275 * 2 / 3, 1e-9);
  EXPECT_NEAR(d.interval->lo, -1.0 / 3 - 4.302652729911275 * 2 / 3, 1e-9);
  EXPECT_NEAR(*d.p, 2.0 / 3, 1e-9);
  EXPECT_EQ(d.prompts, 3);
  EXPECT_EQ(d.differing, 3);
  EXPECT_EQ(d.spread, Spread::kSeen);
}

// Of k independent normal numbers all are below b in absolute value with (2 F(b) - 1)^k.
TEST(ControlDifferences, TheBoundIsThatOfTheLargestOfAll) {
  constexpr int kPrompts = 256;
  ManyArms arms;
  for (int block = 1; block < kPrompts; block *= 2) {
    arms.push_back(blocks(kPrompts, block));
    if (arms.size() == 1) continue;
    const auto of_all = control_differences(arms, 1);
    const double each = std::pow(0.95, 1.0 / static_cast<double>(arms.size()));
    const double t = base::student_t_quantile((1 + each) / 2, kPrompts - 1);
    for (const auto& d : of_all)
      EXPECT_NEAR(half_width(*d) / (t / std::sqrt(kPrompts - 1)), 1, 0.03) << arms.size();
  }
}

TEST(ControlDifferences, ArmsThatDifferAlikeCountAsFew) {
  const ManyArms arms(8, blocks(256, 1));
  const double one = half_width(difference_alone(arms[0]));
  for (const auto& d : control_differences(arms, 1)) {
    EXPECT_GT(half_width(*d), 0.97 * one);
    EXPECT_LT(half_width(*d), 1.15 * one) << "eight independent ones: 1.4";
  }
}

TEST(ControlDifferences, AnIntervalLeaves0OutJustWhereItsPIsBelow5Percent) {
  for (const size_t n_arms : {1, 6}) {
    int out = 0, in = 0;
    for (int step = 0; step < 200; ++step) {
      ManyArms arms;
      for (size_t a = 0; a < n_arms; ++a)
        arms.push_back(blocks(64, 1 << a, 0.15 + 0.0015 * step + 0.01 * static_cast<double>(a)));
      for (const auto& d : control_differences(arms, 1)) {
        EXPECT_EQ(leaves_0_out(*d), *d->p < 0.05) << d->value << " " << *d->p;
        ++(leaves_0_out(*d) ? out : in);
      }
    }
    EXPECT_GT(out, 20);
    EXPECT_GT(in, 20);
  }
}

TEST(ControlDifferences, PRisesWithTheFamily) {
  const OneArm arm = blocks(64, 1, 0.3);
  const double one = *difference_alone(arm).p;
  const auto of_three = control_differences(ManyArms{arm, blocks(64, 2), blocks(64, 4)}, 1);
  EXPECT_GT(*of_three[0]->p, 2 * one);
  EXPECT_LT(*of_three[0]->p, 3.3 * one);
  // Never 0, however large the difference.
  EXPECT_GT(*control_differences(ManyArms{blocks(64, 1, 100), arm}, 1)[0]->p, 0);
}

TEST(ControlDifferences, AnArmThatEqualsTheControlIsInNoFamily) {
  const OneArm ties(64, 0.0), arm = blocks(64, 1, 0.1), other = blocks(64, 4);
  const auto with = control_differences(ManyArms{arm, ties, other}, 1);
  const auto without = control_differences(ManyArms{arm, other}, 1);
  expect_value_alone(*with[1], Spread::kEqual);
  EXPECT_EQ(with[1]->value, 0);
  EXPECT_EQ(with[1]->prompts, 64);
  EXPECT_EQ(with[1]->differing, 0);
  EXPECT_EQ(with[0]->interval->lo, without[0]->interval->lo);
  EXPECT_EQ(with[2]->p, without[1]->p);
  // Beside ties alone an arm is one alone.
  EXPECT_EQ(control_differences(ManyArms{arm, ties}, 1)[0]->interval->hi,
            difference_alone(arm).interval->hi);
}

// t is 1 whatever the number of prompts, and the degrees of freedom are few: no more is known.
TEST(ControlDifferences, FewPromptsThatDifferCountAsFew) {
  for (const int n : {40, 1000}) {
    OneArm one(static_cast<size_t>(n), 0.0);
    one[3] = 1;
    const ControlDifference d = difference_alone(one);
    EXPECT_EQ(d.differing, 1);
    EXPECT_DOUBLE_EQ(d.value, 1.0 / n);
    EXPECT_NEAR(d.value / (half_width(d) / base::student_t_quantile(0.975, 2)), 1, 0.35) << n;
    EXPECT_GT(*d.p, 0.25);
    EXPECT_LT(d.interval->lo, 0);
  }
  // Five prompts, all for the worse: a sign test has p = 2 / 32.
  OneArm five(80, 0.0);
  for (size_t i = 0; i < 5; ++i) five[7 * i] = -1;
  EXPECT_NEAR(*difference_alone(five).p, 0.0625, 0.025);
}

TEST(ControlDifferences, WithoutSpreadThereIsNoInterval) {
  for (const double by : {1.0, 0.1, -1e-9, 1e9}) {
    const ControlDifference d = difference_alone(OneArm(7, by));
    expect_value_alone(d, Spread::kConstant);
    EXPECT_NEAR(d.value / by, 1, 1e-12);
  }
  // But for rounding.
  OneArm rounded(9, 0.3);
  for (size_t i = 0; i < 4; ++i) rounded[i] = 0.1 + 0.2;
  expect_value_alone(difference_alone(rounded), Spread::kConstant);
  // It takes no part.
  const auto d = control_differences(ManyArms{OneArm(64, 1.0), blocks(64, 1)}, 1);
  EXPECT_EQ(d[1]->interval->hi, difference_alone(blocks(64, 1)).interval->hi);
}

TEST(ControlDifferences, OnePromptOrNone) {
  expect_value_alone(difference_alone({0.5}), Spread::kOneUnit);
  EXPECT_EQ(difference_alone({0.5}).value, 0.5);
  expect_value_alone(difference_alone({0.0}), Spread::kEqual);
  // Of several prompts an arm may have one alone, or none.
  const OneArm two = {1, -0.5};
  const auto d = control_differences(ManyArms{two, {0.5, {}}, {{}, {}}}, 1);
  expect_value_alone(*d[1], Spread::kOneUnit);
  EXPECT_FALSE(d[2]);
  EXPECT_EQ(d[0]->interval->hi, difference_alone(two).interval->hi);
  EXPECT_TRUE(control_differences({}, 1).empty());
}

TEST(ControlDifferences, EachArmHasThePromptsThatItIsComparedOn) {
  OneArm half = blocks(64, 2);
  for (size_t i = 32; i < 64; ++i) half[i].reset();
  const OneArm own(half.begin(), half.begin() + 32);
  const auto d = control_differences(ManyArms{blocks(64, 1), half}, 1);
  EXPECT_EQ(d[1]->prompts, 32);
  EXPECT_EQ(d[1]->value, 0);
  const double wider = half_width(*d[0]) / half_width(difference_alone(blocks(64, 1)));
  EXPECT_GT(wider, 1.1);
  EXPECT_NEAR(half_width(*d[1]) / half_width(difference_alone(own)), wider, 0.05);
}

// Every prompt twice, in groups: as each once.
TEST(ControlDifferences, PromptsOfAGroupAreOne) {
  ManyArms once = {blocks(16, 1, 0.4), blocks(16, 4, 0.1)}, twice(2);
  Design design;
  for (size_t a = 0; a < 2; ++a)
    for (const auto& v : once[a]) twice[a].insert(twice[a].end(), {v, v});
  for (int i = 0; i < 32; ++i) design.unit.push_back(i / 2);
  design.stratum.assign(16, 0);
  const auto expected = control_differences(once, 1);
  const auto grouped = control_differences(twice, 1, 0.95, design);
  for (size_t a = 0; a < 2; ++a) {
    EXPECT_NEAR(half_width(*grouped[a]), half_width(*expected[a]), 1e-9);
    EXPECT_NEAR(*grouped[a]->p, *expected[a]->p, 1e-3);
  }
  // One group is one unit. In strata, what is the same within each has no spread.
  design.unit.assign(32, 0), design.stratum.assign(1, 0);
  expect_value_alone(difference_alone(twice[0], design), Spread::kOneUnit);
  const OneArm kinds = {1, 1, 0, 0};
  EXPECT_TRUE(difference_alone(kinds).interval);
  expect_value_alone(difference_alone(kinds, {.unit = {0, 1, 2, 3}, .stratum = {0, 0, 1, 1}}),
                     Spread::kConstant);
}

TEST(LargestError, PAndBoundAgree) {
  const reports::LargestError one;
  EXPECT_NEAR(one.bound(0.95), 1.959964, 1e-6);
  EXPECT_NEAR(one.p(-1.959964), 0.05, 1e-6);
  std::vector<double> drawn;
  for (int i = 0; i < 4000; ++i) drawn.push_back(i % 7 + i / 4000.0);
  const reports::LargestError many(drawn);
  for (const double confidence : {0.5, 0.9, 0.95, 0.99}) {
    const double bound = many.bound(confidence);
    EXPECT_LT(many.p(std::nextafter(bound, 100)), 1 - confidence);
    EXPECT_GE(many.p(bound), 1 - confidence);
  }
}

// Nominal 95 %, all arms at once (docs/measurement.md has all figures). Three standard errors of
// 400 experiments are 3.3 points. One by one, all hold far less often.
TEST(ControlDifferences, HoldForAllArmsAtOnce) {
  for (const bool binary : {true, false})
    for (const double same : {0.0, 0.7}) {
      const QualityCoverage c = cover_quality({.arms = 8, .binary = binary, .same = same}, 40, 400);
      EXPECT_GT(c.at_once.share(), 0.917) << binary << " " << same;
      EXPECT_LT(c.alone.share(), c.at_once.share() - 0.02) << binary << " " << same;
    }
  EXPECT_LT(cover_quality({.arms = 8, .binary = false}, 40, 400).at_once.share(), 0.985)
      << "or the bound sees no correlation";
}

}  // namespace
}  // namespace evalrun::tests
