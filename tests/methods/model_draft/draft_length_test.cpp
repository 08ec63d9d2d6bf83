// Draft lengths and skip sets: the published rules, step by step.
#include "methods/model_draft/draft_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "methods/model_draft/skip_layers.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::draft_length_test {
namespace {

using methods::DraftLength;
using methods::DraftLengthRule;

TEST(DraftLength, HeuristicGrowsByTwoAndShrinksByOne) {
  DraftLength length({.schedule = DraftLengthRule::Schedule::kHeuristic, .k = 5, .most = 10});
  EXPECT_EQ(length.length(), 5);
  length.verified(5, 5, 5);
  EXPECT_EQ(length.length(), 7);
  length.verified(7, 3, 7);
  EXPECT_EQ(length.length(), 6);
  for (int i = 0; i < 5; ++i) length.verified(length.length(), length.length(), length.length());
  EXPECT_EQ(length.length(), 10) << "the most";
  for (int i = 0; i < 20; ++i) length.verified(length.length(), 0, length.length());
  EXPECT_EQ(length.length(), 1) << "never nothing";
  length.start();
  EXPECT_EQ(length.length(), 1) << "carried on to the next answer";
}

TEST(DraftLength, TransientForgetsAndConstantStays) {
  DraftLength transient({.schedule = DraftLengthRule::Schedule::kTransient, .k = 5, .most = 10});
  transient.verified(5, 5, 5);
  transient.start();
  EXPECT_EQ(transient.length(), 5);
  DraftLength constant({.k = 5});
  constant.verified(5, 5, 5);
  constant.verified(5, 0, 5);
  EXPECT_EQ(constant.length(), 5);
}

// Constants of the released program: 0.5, 0.9, 0.01, 0.9 (Self-Speculative Decoding, arXiv
// 2309.08168).
TEST(DraftLength, TheThresholdFollowsAcceptance) {
  DraftLength length({.k = 12, .most = 12, .threshold = 0.6, .adapt_threshold = true});
  EXPECT_TRUE(length.watches_confidence());
  EXPECT_TRUE(length.stops_behind(0.59));
  EXPECT_FALSE(length.stops_behind(0.6));
  length.verified(4, 2, 12);  // a = 0.25: too little is accepted, drafts end sooner
  EXPECT_NEAR(length.threshold(), 0.9 * 0.6 + 0.1 * 0.61, 1e-12);
  for (int i = 0; i < 8; ++i) length.verified(4, 4, 12);  // a -> 1
  const double before = length.threshold();
  length.verified(4, 4, 12);  // ended early although all is accepted
  EXPECT_NEAR(length.threshold(), 0.9 * before + 0.1 * (before - 0.01), 1e-12);
  const double full = length.threshold();
  length.verified(12, 12, 12);  // the longest draft
  EXPECT_NEAR(length.threshold(), full, 1e-12);
  length.start();
  EXPECT_NEAR(length.threshold(), 0.6, 1e-12);
}

TEST(DraftLength, EntropyIsThatOfTheDistribution) {
  const auto of = [](const std::vector<double>& dist, float shift) {
    std::vector<float> logits;
    for (const double p : dist) logits.push_back(static_cast<float>(std::log(p)) + shift);
    return methods::entropy_of(logits);
  };
  EXPECT_NEAR(of({0.25, 0.25, 0.25, 0.25}, 0), std::log(4.0), 1e-6);
  EXPECT_NEAR(of({0.5, 0.25, 0.125, 0.125}, 7), 1.75 * std::log(2.0), 1e-6) << "any shift";
  EXPECT_NEAR(of({0.9, 0.1}, 0), -0.9 * std::log(0.9) - 0.1 * std::log(0.1), 1e-6);
  EXPECT_NEAR(of({1}, 3), 0, 1e-9);
  EXPECT_NEAR(of({0.5, 0.5, 0}, 0), std::log(2.0), 1e-6) << "what cannot be drawn has no part";
  EXPECT_NEAR(of({0.5, 0.5, 1e-30}, 0), std::log(2.0), 1e-6);
}

// SVIP's released program: sqrt(0.15 H) > 0.3 where H > 0.6.
TEST(DraftLength, StopsWhereTheEntropyIsLarge) {
  DraftLength length({.k = 40, .most = 40, .entropy = 0.3});
  EXPECT_TRUE(length.watches_entropy());
  EXPECT_FALSE(length.watches_confidence());
  EXPECT_FALSE(length.stops_at_entropy(0));
  EXPECT_FALSE(length.stops_at_entropy(0.59));
  EXPECT_TRUE(length.stops_at_entropy(0.61));
  EXPECT_FALSE(DraftLength({.k = 5}).watches_entropy());
}

engine::ModelConfig layers(int n) {
  engine::ModelConfig config = small_model(1)->config();
  config.n_layers = n;
  return config;
}

TEST(SkipLayers, ReadsAndWritesLists) {
  const engine::SkipSet skip = methods::skip_set("1+3-5", "none", layers(8));
  EXPECT_EQ(methods::to_text(skip.attention), "1+3-5");
  EXPECT_EQ(methods::to_text(skip.mlp), "none");
  EXPECT_EQ(methods::skip_set("1+3..5", "none", layers(8)).attention, skip.attention);
  EXPECT_EQ(methods::to_text(methods::skip_set("0..6..3", "none", layers(8)).attention), "0+3+6");
  const engine::SkipSet rule = methods::skip_set("auto", "auto", layers(8));
  EXPECT_EQ(methods::to_text(rule.attention), "4-6");
  EXPECT_EQ(methods::to_text(rule.mlp), "5");
  for (const char* bad : {"", "x", "3-1", "-2", "1++2", "1-"})
    EXPECT_THROW(methods::check_layer_list("mlp", bad), base::Error) << bad;
  EXPECT_THROW(methods::skip_set("8", "none", layers(8)), base::Error);
  EXPECT_THROW(methods::skip_set("none", "none", layers(8)), base::Error);
}

TEST(SkipLayers, WhatIsKeptIsCountedInWeights) {
  const engine::ModelConfig config = small_model(1)->config();  // 2 layers, d 32, 4/2 heads of 8
  const double attention = 32 * (2 * 32 + 2 * 16), mlp = 3 * 32 * 48, head = 24 * 32;
  const double all = head + 2 * (attention + mlp);
  EXPECT_NEAR(methods::kept_share(methods::skip_set("1", "none", config), config),
              (all - attention) / all, 1e-12);
  EXPECT_NEAR(methods::kept_share(methods::skip_set("none", "0-1", config), config),
              (all - 2 * mlp) / all, 1e-12);
}

// The draft sees the whole model's keys and values of the text and its own of the draft; after the
// rewind nothing of it is left (check_cache in lossless_test.cpp). A draft that leaves out nothing
// that matters is always right: here a layer whose output is zero.
TEST(SelfSpec, VerifyMatchAndRejectionAgreeUnderGreedy) {
  const auto model = small_model(3);
  const auto session = make_session(model);
  const auto one = build_method("self_spec:attention=1,mlp=none,k=4,threshold=0", model);
  const auto two =
      build_method("self_spec:attention=1,mlp=none,k=4,threshold=0,verify=argmax", model);
  Turn turn{{1, 2, 3, 4}};
  const auto a = run(*one, *session, turn);
  session->reset();
  const auto b = run(*two, *session, turn);
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].accepted, b.steps[i].accepted);
}

TEST(SelfSpec, NeedsTheCache) {
  const auto model = small_model(3);
  methods::MethodBuildContext context;
  context.target = model;
  context.session = session_options();
  context.session.kv_cache = false;
  const methods::MethodSpec spec = methods::parse_method("self_spec");
  EXPECT_THROW(spec.info->build(spec.params, context), base::Error);
}

}  // namespace
}  // namespace evalrun::tests::draft_length_test
