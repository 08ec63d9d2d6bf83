// Ranked lists of draft tokens: the likeliest in order, or drawn together with the distribution
// that verification divides by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "engine/base/rng.h"
#include "methods/heads/static_draft.h"

namespace evalrun::tests::ranked_choices_test {
namespace {

using methods::RankedChoices;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

constexpr int kDraws = 20000;

// Logits of the distribution 0.5, 0.3, 0.2 at temperature 1.
std::vector<float> logits() {
  return {static_cast<float>(std::log(0.5)), static_cast<float>(std::log(0.3)),
          static_cast<float>(std::log(0.2))};
}

struct Choices {
  explicit Choices(std::vector<int32_t> to_target, int vocab_size, double temperature = 1)
      : ids(std::move(to_target)) {
    context.sampling = {temperature, 0, 1.0};
    context.chance = base::KeyedChance(7);
    context.may_keep_dists = false;
    choices.start(context, methods::DraftRule::kAuto, 1, 1, 2, ids, vocab_size);
  }
  void note() {
    choices.clear(++step);
    choices.note(0, 1, scores);
  }
  int64_t step = 0;
  std::vector<int32_t> ids;
  std::vector<float> row = logits();
  engine::RowScores scores{row, {}};
  methods::GenerationContext context;
  RankedChoices choices;
};

// Verification accepts a drawn token by its share of q. Without q it would be tested as a token
// chosen without a draw: lossless still, but accepted less often.
TEST(RankedChoices, DrawnListsTellTheirDistribution) {
  Choices same({}, 3);
  same.note();
  EXPECT_THAT(same.choices.q(0), Pointwise(DoubleNear(1e-6), {0.5, 0.3, 0.2}));
  // The draft's ids 0, 1, 2 are the target's 4, 1, 2.
  Choices mapped({4, 1, 2}, 5);
  mapped.note();
  EXPECT_THAT(mapped.choices.q(0), Pointwise(DoubleNear(1e-6), {0.0, 0.3, 0.2, 0.0, 0.5}));
  // Warped: squares of the shares at temperature 0.5.
  Choices sharp({}, 3, 0.5);
  sharp.note();
  EXPECT_THAT(sharp.choices.q(0),
              Pointwise(DoubleNear(1e-6), {0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38}));
}

TEST(RankedChoices, TokensAreDrawnFromItWithoutReplacement) {
  Choices c({4, 1, 2}, 5);
  std::vector<int> first(5), second(5);
  for (int i = 0; i < kDraws; ++i) {
    c.note();
    ++first[static_cast<size_t>(c.choices.token(0, 0))];
    ++second[static_cast<size_t>(c.choices.token(0, 1))];
    ASSERT_NE(c.choices.token(0, 0), c.choices.token(0, 1));
    ASSERT_EQ(c.choices.token(0, 2), -1);
  }
  // Second draws by hand: sum over the other first draws a of P(a) P(x) / (1 - P(a)).
  const std::vector<double> p = {0, 0.3, 0.2, 0, 0.5};
  for (size_t x = 0; x < p.size(); ++x) {
    double then = 0;
    for (size_t a = 0; a < p.size(); ++a)
      if (a != x) then += p[a] * p[x] / (1 - p[a]);
    const auto within = [](double share) { return 4.5 * std::sqrt(share * (1 - share) / kDraws); };
    EXPECT_NEAR(first[x] / double{kDraws}, p[x], within(p[x])) << x;
    EXPECT_NEAR(second[x] / double{kDraws}, then, within(then)) << x;
  }
}

TEST(RankedChoices, LikeliestTokensHaveNoDistribution) {
  Choices c({4, 1, 2}, 5);
  c.context.sampling = {};
  c.choices.start(c.context, methods::DraftRule::kAuto, 1, 1, 2, c.ids, 5);
  const std::vector<engine::TokenLogit> best = {{0, 1.0f}, {2, 0.5f}};
  c.scores = {{}, best};
  c.note();
  EXPECT_FALSE(c.choices.rejects());
  EXPECT_TRUE(c.choices.q(0).empty());
  EXPECT_THAT((std::vector{c.choices.token(0, 0), c.choices.token(0, 1)}), ElementsAre(4, 2));
}

// By the target's noise: one list of the width is a draw of that many, first the one that the
// target would draw from the same logits.
TEST(RankedChoices, NoiseIsThatOfThePosition) {
  Choices c({4, 1, 2}, 5);
  c.context.sampling.sampler = engine::Sampler::kGumbel;
  c.context.chance = base::KeyedChance(3);
  c.choices.start(c.context, methods::DraftRule::kAuto, 1, 1, 2, c.ids, 5);
  engine::WarpScratch scratch;
  std::vector<float> target(5, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < 3; ++i) target[static_cast<size_t>(c.ids[i])] = c.row[i];
  std::set<int32_t> first;
  for (int64_t position = 1; position < 200; ++position) {
    c.choices.note(0, position, c.scores);
    const double uniform = c.context.chance.target(position);
    EXPECT_EQ(c.choices.token(0, 0), engine::draw(target, c.context.sampling, uniform, scratch));
    EXPECT_NE(c.choices.token(0, 0), c.choices.token(0, 1));
    EXPECT_EQ(c.choices.token(0, 2), -1);
    EXPECT_TRUE(c.choices.q(0).empty());
    first.insert(c.choices.token(0, 0));
  }
  EXPECT_EQ(first.size(), 3u);
}

}  // namespace
}  // namespace evalrun::tests::ranked_choices_test
