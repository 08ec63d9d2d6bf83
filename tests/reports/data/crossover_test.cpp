// Up to which batch a method pays.
#include "reports/data/crossover.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "engine/base/rng.h"

namespace evalrun::reports {
namespace {

using Where = CurvePlace::Where;

// Prompts of one data set, ids from 1 on.
struct CurvePrompts {
  explicit CurvePrompts(int n) {
    for (int i = 0; i < n; ++i) {
      PromptInfo p;
      p.id = i + 1, p.key = std::to_string(i), p.task = "t";
      ids.push_back(p.id), prompts.push_back(p);
    }
    designs = PromptDesigns(prompts, Scope::kSameKind);
  }
  std::vector<int64_t> ids;
  std::vector<PromptInfo> prompts;
  PromptDesigns designs;
};

// Every prompt has the same speedup.
std::vector<SpeedupAtBatch> smooth(const std::vector<std::pair<int64_t, double>>& speedups,
                                   size_t prompts) {
  std::vector<SpeedupAtBatch> curve;
  for (const auto& [batch, speedup] : speedups)
    curve.push_back(
        {batch,
         std::vector<PromptPair>(
             prompts, {.base_tokens = 100, .base_ns = 1e6, .tokens = 100, .ns = 1e6 / speedup})});
  return curve;
}

Crossover found(const std::vector<std::pair<int64_t, double>>& speedups) {
  const CurvePrompts p(64);  // two units of the largest size, at least
  const auto x = crossover(smooth(speedups, p.ids.size()), p.ids, p.designs);
  EXPECT_TRUE(x.has_value());
  return x.value_or(Crossover{});
}

TEST(Crossover, LiesOnALineOfLogarithms) {
  const Crossover x = found({{1, 2.0}, {4, 0.5}});
  EXPECT_EQ(x.at.where, Where::kInside);
  EXPECT_NEAR(x.at.batch, 2, 1e-9);
  EXPECT_EQ(x.crossings, 1);
  // Without any spread the interval is that place.
  ASSERT_TRUE(x.lo && x.hi);
  EXPECT_NEAR(x.lo->batch, 2, 1e-6);
  EXPECT_NEAR(x.hi->batch, 2, 1e-6);
  EXPECT_EQ(x.text(), "2.0 [2.0, 2.0]");
  EXPECT_NEAR(found({{1, 3.0}, {2, 1.5}, {8, 0.9}, {16, 0.5}}).at.batch,
              2 * std::pow(4, std::log(1.5) / std::log(1.5 / 0.9)), 1e-9);
}

TEST(Crossover, MayLieBeyondTheEnds) {
  const Crossover above = found({{1, 2.0}, {4, 1.5}, {32, 1.1}});
  EXPECT_EQ(above.at.text(), "above 32");
  EXPECT_EQ(above.lo->text(), "above 32");
  EXPECT_EQ(above.hi->text(), "above 32");
  EXPECT_EQ(above.crossings, 0);
  const Crossover below = found({{2, 0.9}, {4, 0.8}});
  EXPECT_EQ(below.at.text(), "below 2");
  EXPECT_EQ(below.hi->text(), "below 2");
}

TEST(Crossover, IsTheFirstFromAbove) {
  const Crossover twice = found({{1, 2.0}, {2, 0.5}, {4, 2.0}, {8, 0.5}});
  EXPECT_NEAR(twice.at.batch, std::sqrt(2.0), 1e-9);
  EXPECT_EQ(twice.crossings, 3);
  // From below there is none, and after it the first one counts.
  const Crossover later = found({{1, 0.5}, {4, 2.0}, {16, 0.5}});
  EXPECT_NEAR(later.at.batch, 8, 1e-9);
  EXPECT_NEAR(later.lo->batch, 8, 1e-6);
  EXPECT_EQ(later.crossings, 2);
  const Crossover rising = found({{1, 0.5}, {4, 2.0}});
  EXPECT_EQ(rising.at.text(), "above 4");
  EXPECT_EQ(rising.crossings, 1);
}

TEST(Crossover, NeedsACurve) {
  const CurvePrompts p(4);
  EXPECT_FALSE(crossover(smooth({{1, 2.0}}, 4), p.ids, p.designs).has_value());
  auto silent = smooth({{1, 2.0}, {2, 1.0}}, 4);
  for (PromptPair& pair : silent[1].pairs) pair.tokens = 0;
  EXPECT_FALSE(crossover(silent, p.ids, p.designs).has_value());
  // One unit has no interval: all four prompts were decoded together.
  const auto one = crossover(smooth({{1, 2.0}, {4, 0.5}}, 4), p.ids, p.designs);
  EXPECT_FALSE(one->lo.has_value());
  EXPECT_EQ(one->text(), "2.0");
}

// True speedups are exp(0.5), exp(0.2), exp(-0.1), exp(-0.4) at 1, 2, 4, 8: they cross 1 at
// 2^(1 + 2/3). A prompt's own part is the same at every size, a batch's is shared by its prompts.
TEST(Crossover, IntervalsHoldTheTruthAsOftenAsTheySay) {
  constexpr int kTrials = 400, kPrompts = 96;
  const double truth = std::pow(2, 1 + 2.0 / 3);
  const CurvePrompts p(kPrompts);
  base::Rng rng(37);
  const auto normal = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng.uniform();
    return sum;
  };
  int held = 0, too_low = 0, too_high = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> own;
    for (int i = 0; i < kPrompts; ++i) own.push_back(0.2 * normal());
    std::vector<SpeedupAtBatch> curve;
    double log = 0.5;
    for (const int64_t batch : {1, 2, 4, 8}) {
      SpeedupAtBatch at{.batch = batch, .pairs = {}};
      double shared = 0;
      for (int i = 0; i < kPrompts; ++i) {
        if (i % batch == 0) shared = 0.2 * normal();
        const double speedup = std::exp(log + own[static_cast<size_t>(i)] + shared);
        at.pairs.push_back(
            {.base_tokens = speedup, .base_ns = speedup, .tokens = speedup, .ns = 1});
      }
      curve.push_back(std::move(at));
      log -= 0.3;
    }
    // A ratio of sums of log-normal times is exp(variance / 2) off: that of both parts.
    for (SpeedupAtBatch& at : curve)
      for (PromptPair& pair : at.pairs) pair.ns *= std::exp(0.04);
    const auto x = crossover(curve, p.ids, p.designs);
    ASSERT_TRUE(x && x->lo && x->hi);
    const auto low = [&](const CurvePlace& c) {
      return c.where == Where::kBelow || (c.where == Where::kInside && c.batch <= truth);
    };
    held += low(*x->lo) && !low(*x->hi);
    too_high += !low(*x->lo);
    too_low += low(*x->hi);
  }
  EXPECT_NEAR(held / static_cast<double>(kTrials), 0.95, 0.04);
  EXPECT_LT(too_low, 0.06 * kTrials);
  EXPECT_LT(too_high, 0.06 * kTrials);
}

}  // namespace
}  // namespace evalrun::reports
