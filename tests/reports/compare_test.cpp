// Paired comparison: verdicts, causes, and what cannot be compared.
#include "reports/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using results::ResultStore;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::SyntheticArm;
using tests::SyntheticRun;

class CompareTest : public ::testing::Test {
 protected:
  CompareTest() : store_(folder_.file("a.db")) {
    run_.arms = tests::usual_arms();
    run_.prompts_per_task = 20;
  }
  // Fills a run in which AR takes `ar` and the method `method` times as long, with `noise`
  // (standard deviation about noise / 3.5) on every generation.
  int64_t measure(const std::string& key, double ar, double method, double noise = 0) {
    run_.key = key;
    auto rng = std::make_shared<base::Rng>(std::hash<std::string>{}(key));
    const auto spoil = spoil_;
    run_.change = [=](GenerationRecord& g, const SyntheticArm& a, int prompt, int repeat,
                      int sample) {
      const double factor =
          (a.role == "method" ? method : ar) * (1 + noise * (rng->uniform() - 0.5));
      g.turns[0].decode_ns = std::llround(factor * static_cast<double>(g.turns[0].decode_ns));
      if (spoil) spoil(g, a, prompt, repeat, sample);
    };
    return tests::fill(store_, run_);
  }
  ArmComparison compare(int64_t a, int64_t b) {
    return compare_runs(store_, a, store_, b).arms.at(0);
  }

  tests::TemporaryFolder folder_;
  ResultStore store_;
  SyntheticRun run_;
  decltype(SyntheticRun::change) spoil_;
};

TEST_F(CompareTest, TheSameTwiceIsNoDifference) {
  const ArmComparison c = compare(measure("a", 1, 1, 0.02), measure("b", 1, 1, 0.02));
  EXPECT_EQ(c.change, Change::kNoDifference);
  EXPECT_EQ(c.n_prompts, 20);
  EXPECT_EQ(c.identical_share, 1);
  EXPECT_THAT(c.causes, IsEmpty());
}

TEST_F(CompareTest, ASlowerMethod) {
  const ArmComparison c = compare(measure("a", 1, 1, 0.02), measure("b", 1, 1.1, 0.02));
  EXPECT_EQ(c.change, Change::kSlower);
  EXPECT_NEAR(c.ratio, 1 / 1.1, 0.01);
  EXPECT_LT(*c.p_value, 1e-6);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kMethodSlower));
}

TEST_F(CompareTest, AFasterBaselineLowersTheSpeedupToo) {
  const ArmComparison c = compare(measure("a", 1, 1), measure("b", 0.8, 1));
  EXPECT_EQ(c.change, Change::kSlower);
  EXPECT_NEAR(c.ratio, 0.8, 1e-6);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kArFaster));
}

TEST_F(CompareTest, TheRatioHidesBothSlower) {
  const ArmComparison c = compare(measure("a", 1, 1), measure("b", 1.3, 1.3));
  EXPECT_EQ(c.change, Change::kNoDifference);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kBothSlower));
}

TEST_F(CompareTest, NoiseIsInconclusive) {
  const ArmComparison c = compare(measure("a", 1, 1, 0.9), measure("b", 1, 1, 0.9));
  EXPECT_EQ(c.change, Change::kInconclusive);
}

TEST_F(CompareTest, RatioAndIntervalByHand) {
  run_.prompts_per_task = 2;
  spoil_ = [](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
    if (a.role == "method" && prompt == 1) g.turns[0].decode_ns *= 2;
  };
  const int64_t b = measure("b", 1, 1);
  spoil_ = nullptr;
  const ArmComparison c = compare(measure("a", 1, 1), b);
  // d = {0, -ln 2}: mean -ln 2 / 2, SE = sd / sqrt 2 = (ln 2 / sqrt 2) / sqrt 2.
  EXPECT_NEAR(c.ratio, std::sqrt(0.5), 1e-12);
  const double half = std::tan(0.475 * M_PI) * std::log(2) / 2;
  EXPECT_NEAR(c.interval->hi, std::sqrt(0.5) * std::exp(half), 1e-8);
  // t = -1 with one degree of freedom: P = 1/2.
  EXPECT_NEAR(*c.p_value, 0.5, 1e-12);
}

TEST_F(CompareTest, ChangedTextIsSaid) {
  spoil_ = [](GenerationRecord& g, const SyntheticArm&, int prompt, int, int) {
    if (prompt < 5) g.turns[0].tokens[2] += 1;
  };
  const int64_t b = measure("b", 1, 1);
  spoil_ = nullptr;
  const ArmComparison c = compare(measure("a", 1, 1), b);
  EXPECT_DOUBLE_EQ(c.identical_share, 0.75);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kTextChanged));
}

TEST_F(CompareTest, AcrossTwoFiles) {
  tests::TemporaryFolder other;
  ResultStore second(other.file("b.db"));
  const int64_t a = measure("a", 1, 1);
  tests::fill(second, run_);
  run_.key = "b";
  const int64_t b = tests::fill(second, run_);
  EXPECT_EQ(compare_runs(store_, a, second, b).arms.at(0).change, Change::kNoDifference);
}

TEST_F(CompareTest, DifferingSettingsAreWarnings) {
  const int64_t a = measure("a", 1, 1);
  run_.isa = "avx2";
  run_.prompts_per_task = 19;
  const Comparison c = compare_runs(store_, a, store_, measure("b", 1, 1));
  EXPECT_THAT(c.warnings, Contains(HasSubstr("isa is avx512 in A, avx2 in B")));
  EXPECT_THAT(c.warnings, Contains(HasSubstr("1 prompts are in A only")));
}

TEST_F(CompareTest, ATunedTargetHasItsOwnPlainDecoding) {
  run_.arms = tests::arms_with_a_tuned_target();
  const int64_t a = measure("a", 1, 1, 0.02), b = measure("b", 1, 1, 0.02);
  const Comparison c = compare_runs(store_, a, store_, b);
  ASSERT_EQ(c.arms.size(), 2u);
  EXPECT_EQ(c.arms[0].method, "pld:k=4");
  EXPECT_EQ(c.arms[1].method, "space");
  EXPECT_NEAR(c.arms[0].a.base_tok_s, 100, 3);
  EXPECT_NEAR(c.arms[1].a.base_tok_s, 125, 3);
}

TEST_F(CompareTest, NothingInCommonIsAnError) {
  const int64_t a = measure("a", 1, 1);
  run_.arms[2].label = "sps";
  const int64_t b = measure("b", 1, 1);
  EXPECT_THROW(compare_runs(store_, a, store_, b), base::Error);
  run_.arms.erase(run_.arms.begin());
  const int64_t without_ar = measure("c", 1, 1);
  EXPECT_THROW(compare_runs(store_, a, store_, without_ar), base::Error);
  EXPECT_THROW(compare_runs(store_, a, store_, 999), base::Error);
}

}  // namespace
}  // namespace evalrun::reports
