// What steps keep beside the most that a lossless rule could: rules stay below on average, block
// verification of a chain comes to it, and a rule that accepts wrongly is above.
#include "runners/verify/acceptance_bound.h"

#include <gtest/gtest.h>

#include <cmath>

#include "methods/faults.h"
#include "tests/methods/support/harness.h"

namespace evalrun::runners {
namespace {

constexpr int kBoundPrompts = 40;

class BoundTest : public ::testing::Test {
 protected:
  AcceptanceBound measure(methods::DecodingMethod& method, int prompts = kBoundPrompts) {
    AcceptanceMeter meter(method, *beside_);
    for (int i = 0; i < prompts; ++i) {
      meter.next_prompt();
      const tests::Tokens prompt = {1 + i % 5, 2, 3, 4, 1, 2, 3, 4, 1, 2};
      meter.begin(prompt, sampling_);
      answers_.push_back(decode(method, prompt, i));
    }
    return meter.bound();
  }
  AcceptanceBound measure(const std::string& name) {
    return measure(*tests::build_method(name, model_));
  }
  tests::Tokens decode(methods::DecodingMethod& method, const tests::Tokens& prompt, int seed) {
    tests::Turn turn{prompt, 0, 32};
    turn.sampling = sampling_;
    turn.seed = static_cast<uint64_t>(seed) + 1;
    session_->reset();
    return tests::run(method, *session_, turn).tokens;
  }

  std::shared_ptr<const engine::Model> model_ = tests::small_model(3);
  std::unique_ptr<engine::Session> session_ = tests::make_session(model_),
                                   beside_ = tests::make_session(model_);
  engine::SamplingParams sampling_{1.0, 0, 1.0};
  std::vector<tests::Tokens> answers_;
};

// How far the bound is above what was kept, in standard errors of that over prompts.
double errors_above(const AcceptanceBound& bound, double KeptDrafts::*most,
                    double KeptDrafts::*kept) {
  double mean = 0, squares = 0;
  const auto n = static_cast<double>(bound.prompts.size());
  for (const KeptDrafts& p : bound.prompts) mean += (p.*most - p.*kept) / n;
  for (const KeptDrafts& p : bound.prompts)
    squares += (p.*most - p.*kept - mean) * (p.*most - p.*kept - mean);
  return mean / std::sqrt(squares / (n - 1) / n);
}
double tokens_above(const AcceptanceBound& bound) {
  return errors_above(bound, &KeptDrafts::most_kept, &KeptDrafts::kept);
}
double first_above(const AcceptanceBound& bound) {
  return errors_above(bound, &KeptDrafts::most_first, &KeptDrafts::first);
}

constexpr double kFar = 4.5;  // standard errors: a right rule is once in 10^5 so far off

TEST_F(BoundTest, NoRulePassesIt) {
  for (const char* name : {"sps:draft=layers:1,k=3", "sps:draft=layers:1,k=3,verify=block",
                           "sps:draft=layers:1,k=3,verify=gbv,paths=2"}) {
    const AcceptanceBound bound = measure(name);
    EXPECT_EQ(bound.without_bound, "") << name;
    EXPECT_TRUE(bound.whole_steps) << name;
    EXPECT_EQ(bound.answers, kBoundPrompts);
    EXPECT_GT(bound.steps(), 300);
    EXPECT_GT(tokens_above(bound), -kFar) << name;
    EXPECT_GT(first_above(bound), -kFar) << name;
    const PerStep tau = bound.per_step(&KeptDrafts::kept);
    ASSERT_TRUE(tau.interval) << name;
    EXPECT_LT(tau.interval->lo, tau.value);
    EXPECT_GT(tau.interval->hi, tau.value);
    EXPECT_LE(bound.per_step(&KeptDrafts::most_first).value, 1);
  }
}

TEST_F(BoundTest, BlockVerificationComesToIt) {
  const AcceptanceBound bound = measure("sps:draft=layers:1,k=3,verify=block");
  EXPECT_LT(tokens_above(bound), kFar);
  const PerStep left = bound.left(&KeptDrafts::most_kept, &KeptDrafts::kept);
  EXPECT_NEAR(
      left.value,
      bound.per_step(&KeptDrafts::most_kept).value - bound.per_step(&KeptDrafts::kept).value,
      1e-12);
}

TEST_F(BoundTest, OfATreeTheFirstTokenIsKnown) {
  for (const char* name :
       {"medusa:adapter=@medusa,draft=drawn", "medusa:adapter=@medusa,draft=traversal"}) {
    const AcceptanceBound bound = measure(name);
    EXPECT_EQ(bound.without_bound, "") << name;
    EXPECT_FALSE(bound.whole_steps) << name;
    EXPECT_GT(first_above(bound), -kFar) << name;
    EXPECT_FALSE(to_json(bound).contains("most_tau"));
    EXPECT_TRUE(to_json(bound).contains("most_first_kept"));
  }
}

// A rule that is not lossless is seen above the bound, without any test of a law.
TEST_F(BoundTest, AWrongAcceptanceIsAboveIt) {
  for (const char* name : {"sps:draft=layers:1,k=3", "sps:draft=layers:1,k=3,verify=gbv,paths=2"}) {
    const auto method =
        methods::plant_fault(tests::build_method(name, model_), "wrong-accept:100%");
    const AcceptanceBound bound = measure(*method);
    EXPECT_LT(tokens_above(bound), -kFar) << name;
    EXPECT_LT(first_above(bound), -kFar) << name;
  }
}

TEST_F(BoundTest, SaysWhereNothingIsKnown) {
  for (const char* name : {"pld:k=3", "sps:draft=layers:1,k=3,verify=match"}) {
    const AcceptanceBound bound = measure(name);
    EXPECT_EQ(bound.without_bound, "drafts come without the distribution that they were drawn from")
        << name;
    const auto json = to_json(bound);
    EXPECT_TRUE(json.contains("tau"));
    EXPECT_FALSE(json.contains("most_tau"));
    EXPECT_FALSE(json.contains("most_first_kept"));
  }
}

TEST_F(BoundTest, ChangesNothing) {
  const auto method = tests::build_method("sps:draft=layers:1,k=3", model_);
  const AcceptanceBound bound = measure(*method, 3);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(answers_[static_cast<size_t>(i)],
              decode(*method, {1 + i % 5, 2, 3, 4, 1, 2, 3, 4, 1, 2}, i));
  EXPECT_EQ(bound.answers, 3) << "the hook is gone";
}

// Prompts of equal length whose ratios are 1, 2 and 3 of 10 steps: the interval is that of a mean.
TEST(AcceptanceBound, IntervalsAreOverPrompts) {
  AcceptanceBound bound;
  bound.prompts = {{10, 10, 5, 0, 0}, {10, 20, 5, 0, 0}, {10, 30, 5, 0, 0}};
  const PerStep kept = bound.per_step(&KeptDrafts::kept);
  EXPECT_NEAR(kept.value, 2, 1e-12);
  ASSERT_TRUE(kept.interval);
  EXPECT_NEAR(kept.interval->hi - 2, 4.302653 / std::sqrt(3.0), 1e-5);  // t of 2 degrees
  const PerStep first = bound.per_step(&KeptDrafts::first);
  ASSERT_TRUE(first.interval);
  EXPECT_NEAR(first.interval->hi, 0.5, 1e-12);
  bound.prompts.resize(1);
  EXPECT_FALSE(bound.per_step(&KeptDrafts::kept).interval);
  bound.prompts.clear();
  EXPECT_EQ(bound.per_step(&KeptDrafts::kept).value, 0);
}

}  // namespace
}  // namespace evalrun::runners
