// Draws of servers against log-probabilities: what a law is, how often honest draws are refused,
// which tilts are seen, and sampling parameters that are not applied.
#include "runners/verify/endpoints/endpoint_law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/multinomial.h"
#include "runners/verify/certificate.h"
#include "runners/verify/endpoints/endpoint_sampling.h"
#include "tests/endpoints/token_server.h"

namespace evalrun::runners {
namespace {

using ::testing::HasSubstr;
using tests::TokenServer;

TokenCandidates candidates(const std::vector<double>& probs) {
  TokenCandidates c;
  for (size_t i = 0; i < probs.size(); ++i) {
    c.ids.push_back(static_cast<int32_t>(i));
    c.log_probs.push_back(std::log(probs[i]));
  }
  return c;
}

TEST(TokenLaw, AllOfTheVocabularyAtTemperatureOne) {
  const auto law =
      token_law(candidates({0.5, 0.3, 0.1}), {1.0, 0, 1.0}, CutOrder::kTemperatureFirst, 0);
  ASSERT_TRUE(law.has_value());
  EXPECT_NEAR(law->prob[0], 0.5, 1e-9);
  EXPECT_NEAR(law->prob[2], 0.1, 1e-9);
  EXPECT_NEAR(law->rest.value(), 0.1, 1e-9);
  EXPECT_FALSE(law->closed);
}

TEST(TokenLaw, AtAnotherTemperatureOnlyRatiosAreKnown) {
  const auto law =
      token_law(candidates({0.4, 0.2, 0.1}), {0.5, 0, 1.0}, CutOrder::kTemperatureFirst, 0);
  ASSERT_TRUE(law.has_value());
  EXPECT_FALSE(law->rest.has_value());
  EXPECT_NEAR(law->prob[0] / law->prob[1], 4, 1e-9);
}

TEST(TokenLaw, TopKAndTopPLeaveCandidates) {
  const TokenCandidates c = candidates({0.4, 0.3, 0.2, 0.05});
  const auto by_k = token_law(c, {1.0, 2, 1.0}, CutOrder::kTemperatureFirst, 0);
  ASSERT_TRUE(by_k && by_k->closed);
  EXPECT_NEAR(by_k->prob[0], 4.0 / 7 * (1 - kLeastRest), 1e-9);
  EXPECT_EQ(by_k->prob[2], 0);
  const auto by_p = token_law(c, {1.0, 0, 0.6}, CutOrder::kTemperatureFirst, 0);
  ASSERT_TRUE(by_p && by_p->closed);
  EXPECT_EQ(by_p->prob[2], 0) << "0.4 + 0.3 reach it";
  EXPECT_GT(by_p->prob[1], 0);
  const auto beyond = token_law(c, {1.0, 0, 0.99}, CutOrder::kTemperatureFirst, 0);
  ASSERT_TRUE(beyond.has_value());
  EXPECT_FALSE(beyond->rest.has_value()) << "where it cuts is not listed";
}

// At T = 0.5 two tokens have 0.8 of all; before that it takes three.
TEST(TokenLaw, TheOrderOfTemperatureAndTopPMatters) {
  const TokenCandidates c = candidates({0.4, 0.3, 0.2, 0.05});
  const auto first = token_law(c, {0.5, 0, 0.8}, CutOrder::kTemperatureFirst, 0);
  const auto last = token_law(c, {0.5, 0, 0.8}, CutOrder::kCutFirst, 0);
  ASSERT_TRUE(first && last);
  EXPECT_EQ(first->prob[2], 0);
  EXPECT_GT(last->prob[2], 0);
}

TEST(TokenLaw, BordersWithinTheNoiseAreNotJudged) {
  const TokenCandidates c = candidates({0.4, 0.3, 0.29});
  EXPECT_TRUE(token_law(c, {1.0, 2, 1.0}, CutOrder::kTemperatureFirst, 0.01));
  EXPECT_FALSE(token_law(c, {1.0, 2, 1.0}, CutOrder::kTemperatureFirst, 0.1));
  EXPECT_FALSE(token_law(c, {1.0, 0, 0.69}, CutOrder::kTemperatureFirst, 0.1));
  EXPECT_FALSE(token_law(c, {1.0, 9, 0.9}, CutOrder::kTemperatureFirst, 0));
  EXPECT_FALSE(token_law({}, {1.0, 0, 1.0}, CutOrder::kTemperatureFirst, 0));
}

TEST(Candidates, WhatIsNoLogProbabilityIsLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<EndpointLogProb> list = {{5, "a", -1},  {7, "b", -0.5}, {5, "a", -1},
                                             {-1, "c", -2}, {8, "d", nan},  {9, "e", 3}};
  EXPECT_EQ(candidates_of(list).ids, (std::vector<int32_t>{7, 5}));
}

// Two texts of six tokens.
struct Draws {
  std::vector<TokenCandidates> at = {candidates({0.4, 0.25, 0.15, 0.1, 0.06}),
                                     candidates({0.6, 0.2, 0.1, 0.05, 0.03})};
  // `tilt` of the probability goes from the first to the second.
  std::vector<TokenCounts> counts(int64_t draws, double tilt, double temperature, uint64_t seed) {
    std::vector<TokenCounts> all;
    base::Rng rng(seed);
    for (const TokenCandidates& c : at) {
      std::vector<double> prob;
      double hidden = 1;
      for (const double lp : c.log_probs) {
        prob.push_back(std::exp(lp / temperature));
        hidden -= std::exp(lp);
      }
      prob.push_back(std::pow(hidden, 1 / temperature));
      prob[0] -= tilt, prob[1] += tilt;
      std::vector<int64_t> n;
      base::Multinomial(prob).draw(rng, draws, n);
      all.push_back({{n.begin(), n.end() - 1}, n.back()});
    }
    return all;
  }
  double p(const std::vector<TokenCounts>& counts, uint64_t seed) {
    std::vector<base::TestP> tests;
    for (size_t i = 0; i < at.size(); ++i) {
      const auto law = token_law(at[i], {1.0, 0, 1.0}, CutOrder::kTemperatureFirst, 0);
      tests.push_back(
          {test_counts(*law, counts[i], base::combine_seeds({seed, i}), 50'000)->p, true});
    }
    return base::joint_p(tests);
  }
};

// 200 honest servers: at a level of 1 % two are expected, and more than eight have a chance of
// 0.03 %; at the level of a look none (3 %).
TEST(TestCounts, HonestDrawsPassAtTheStatedLevel) {
  Draws draws;
  int at_one_per_cent = 0, at_level = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const double p = draws.p(draws.counts(400, 0, 1, seed), seed);
    at_one_per_cent += p < 0.01 ? 1 : 0;
    at_level += p < kCertificateLevel / 6 ? 1 : 0;
  }
  EXPECT_LE(at_one_per_cent, 8);
  EXPECT_LE(at_level, 1);
}

TEST(TestCounts, TiltsAreSeenWithEnoughDraws) {
  Draws draws;
  const double level = kCertificateLevel / 6;
  EXPECT_LT(draws.p(draws.counts(1000, 0.10, 1, 1), 1), level);
  EXPECT_LT(draws.p(draws.counts(4000, 0.05, 1, 2), 2), level);
  EXPECT_LT(draws.p(draws.counts(25'000, 0.02, 1, 3), 3), level);
  EXPECT_GT(draws.p(draws.counts(200, 0.02, 1, 4), 4), level) << "too few to see so little";
}

TEST(SeenTemperature, IsThatOfTheDraws) {
  Draws draws;
  for (const double temperature : {0.5, 1.0, 1.5}) {
    const auto counts = draws.counts(5000, 0, temperature, 7);
    std::vector<TokenLaw> laws;
    for (const TokenCandidates& c : draws.at)
      laws.push_back(*token_law(c, {1.0, 0, 1.0}, CutOrder::kTemperatureFirst, 0));
    std::vector<LawPlaceView> views;
    for (size_t i = 0; i < laws.size(); ++i) views.push_back({&draws.at[i], &laws[i], &counts[i]});
    const auto seen = seen_temperature(views);
    ASSERT_TRUE(seen.has_value());
    EXPECT_NEAR(seen->value, temperature, 0.1 * temperature);
    EXPECT_LT(seen->interval.lo, seen->value);
    EXPECT_GT(seen->interval.hi, seen->value);
  }
}

TEST(SeenTemperature, GreedyDrawsHaveNone) {
  Draws draws;
  const TokenCounts counts{{200, 0, 0, 0, 0}, 0};
  const auto law = token_law(draws.at[0], {1.0, 0, 1.0}, CutOrder::kTemperatureFirst, 0);
  const std::vector<LawPlaceView> views = {{&draws.at[0], &*law, &counts}};
  const auto seen = seen_temperature(views);
  ASSERT_TRUE(seen.has_value());
  EXPECT_LT(seen->value, kLeastTemperature);
}

class EndpointSamplingTest : public ::testing::Test {
 protected:
  EndpointSamplingTest() {
    plain_.name = "plain";
    speculative_.name = "spec";
    for (const EndpointPrompt& p : tests::fake_prompts(2)) places_.push_back({p.id, p.ids, p.text});
    options_.draws = 160;
    options_.max_new = 3;
    options_.clients = 4;
    options_.power = false;
    options_.simulations = 50'000;
  }
  EndpointSampling test() {
    return test_endpoint_sampling(tests::serve(speculative_), tests::serve(plain_), places_,
                                  options_, [] {});
  }
  TokenServer plain_, speculative_;
  std::vector<EndpointPlace> places_;
  EndpointSamplingOptions options_;
};

TEST_F(EndpointSamplingTest, HonestServersPass) {
  for (const engine::SamplingParams& sampling :
       {engine::SamplingParams{1.0, 0, 1.0}, engine::SamplingParams{0.7, 0, 1.0},
        engine::SamplingParams{0.8, 3, 1.0}}) {
    options_.sampling = sampling;
    const EndpointSampling s = test();
    EXPECT_EQ(s.no_law, "");
    EXPECT_FALSE(s.law_refused);
    EXPECT_FALSE(s.texts_refused);
    EXPECT_EQ(s.looks, 3);
    EXPECT_EQ(s.draws, 320);
    EXPECT_GT(s.nodes, 2) << "second tokens, too";
    ASSERT_TRUE(s.speculative.temperature && s.plain.temperature);
    EXPECT_NEAR(s.speculative.temperature->value, sampling.temperature, 0.5 * sampling.temperature);
    EXPECT_EQ(s.speculative.outside, 0);
  }
}

TEST_F(EndpointSamplingTest, StatesWhatItWouldHaveFound) {
  options_.power = true;
  places_.resize(1);
  options_.draws = 64;
  options_.max_new = 1;
  const EndpointSampling s = test();
  ASSERT_TRUE(s.smallest_found.has_value());
  EXPECT_GT(*s.smallest_found, 0.05);
}

TEST_F(EndpointSamplingTest, ATemperatureThatIsIgnored) {
  options_.sampling.temperature = 0.4;
  speculative_.applied = [](engine::SamplingParams p) {
    p.temperature = 1;
    return p;
  };
  const EndpointSampling s = test();
  EXPECT_TRUE(s.law_refused);
  ASSERT_TRUE(s.speculative.temperature.has_value());
  EXPECT_GT(s.speculative.temperature->interval.lo, 0.4);
  EXPECT_LT(s.looks, 3) << "ends at the first refusal";
}

TEST_F(EndpointSamplingTest, GreedyWhereSamplingWasAskedFor) {
  speculative_.applied = [](engine::SamplingParams) { return engine::SamplingParams{}; };
  const EndpointSampling s = test();
  EXPECT_TRUE(s.law_refused);
  ASSERT_TRUE(s.speculative.temperature.has_value());
  EXPECT_LT(s.speculative.temperature->value, kLeastTemperature);
}

TEST_F(EndpointSamplingTest, ATopKThatIsIgnored) {
  options_.sampling = {1.5, 2, 1.0};
  speculative_.applied = [](engine::SamplingParams p) {
    p.top_k = 0;
    return p;
  };
  const EndpointSampling s = test();
  EXPECT_TRUE(s.law_refused);
  EXPECT_GT(s.speculative.outside, 5);
  EXPECT_EQ(s.plain.outside, 0);
}

TEST_F(EndpointSamplingTest, WhereBothIgnoreItNothingIsShown) {
  options_.sampling.temperature = 0.3;
  speculative_.applied = plain_.applied = [](engine::SamplingParams p) {
    p.temperature = 1.5;
    return p;
  };
  const EndpointSampling s = test();
  EXPECT_FALSE(s.law_refused);
  EXPECT_THAT(s.no_law, HasSubstr("plain server's own draws"));
}

TEST_F(EndpointSamplingTest, WithoutLogProbabilitiesTextsAreCompared) {
  plain_.abilities.log_probs = false;
  speculative_.tilt = 0.4;
  const EndpointSampling s = test();
  EXPECT_THAT(s.no_law, HasSubstr("log-probabilities"));
  EXPECT_FALSE(s.law_refused);
  EXPECT_TRUE(s.texts_refused);
}

TEST_F(EndpointSamplingTest, EqualSeeds) {
  const auto prompts = tests::fake_prompts(6);
  const auto compare = [&] {
    return compare_seeded(tests::serve(speculative_), tests::serve(plain_), prompts, 12, options_);
  };
  const SeededAnswers same = compare();
  EXPECT_EQ(same.answers, 6);
  EXPECT_EQ(same.identical, 6);
  EXPECT_EQ(same.plain_again, 6);
  speculative_.salt = 9;
  EXPECT_EQ(compare().identical, 0);
  speculative_.abilities.seeded = false;
  EXPECT_EQ(compare().answers, 0);
}

}  // namespace
}  // namespace evalrun::runners
