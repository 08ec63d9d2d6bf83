// Methods made to follow a text that is given: the text comes out, and every place where the method
// would have gone on otherwise is counted.
#include "methods/replay.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "methods/faults.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::replay_test {
namespace {

const Turn kTurn{{1, 2, 3, 1, 2, 3, 1, 2}, 0, 64};

TEST(Replay, OfAHonestMethodAsksEveryPlaceAndFindsNothing) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto model = small_model(seed);
    const auto session = make_session(model);
    const Tokens expected = run(*build_method("ar", model), *session, kTurn).tokens;
    for (const Arm& arm : all_arms()) {
      const auto method = build_arm(arm, model);
      const auto alone = run(*method, *session, kTurn);
      const methods::Replay replay(*method, expected);
      const auto led = run(*method, *session, kTurn);
      EXPECT_EQ(led.tokens, expected) << arm.name;
      EXPECT_EQ(replay.trace().asked, 63) << arm.name << ": all but the prefill's token";
      EXPECT_TRUE(replay.trace().disagreements.empty()) << arm.name;
      if (arm.carries_state) continue;
      // Nothing else changed either: the same steps.
      ASSERT_EQ(led.steps.size(), alone.steps.size()) << arm.name;
      for (size_t i = 0; i < led.steps.size(); ++i)
        EXPECT_EQ(led.steps[i].accepted, alone.steps[i].accepted) << arm.name << ", step " << i;
    }
  }
}

TEST(Replay, FollowsAnyTextAndCountsWhereItIsNotTheModels) {
  const auto model = small_model(4);
  const auto session = make_session(model);
  Tokens text = run(*build_method("ar", model), *session, kTurn).tokens;
  for (const char* name : {"ar", "pld:k=4", "sps:draft=layers:1,k=3"}) {
    const auto method = build_method(name, model);
    for (const size_t place : {size_t{1}, size_t{20}, size_t{40}}) {
      Tokens other = text;
      other[place] = (other[place] + 1) % 24;
      const methods::Replay replay(*method, other);
      const auto led = run(*method, *session, kTurn);
      // After the foreign token the model may want other tokens than those of the text, too.
      EXPECT_EQ(led.tokens, other) << name;
      ASSERT_FALSE(replay.trace().disagreements.empty()) << name;
      EXPECT_EQ(replay.trace().disagreements.front().index, static_cast<int>(place)) << name;
      EXPECT_EQ(replay.trace().disagreements.front().found, text[place]) << name;
    }
  }
}

TEST(Replay, SeesAPlantedFaultAndKeepsTheText) {
  const auto model = small_model(2);
  const auto session = make_session(model);
  const Tokens expected = run(*build_method("ar", model), *session, kTurn).tokens;
  for (const char* name : {"ar", "pld:k=4", "lookahead", "sps:draft=layers:1,k=3"}) {
    const auto faulty = methods::plant_fault(build_method(name, model), "wrong-accept");
    const Tokens alone = run(*faulty, *session, kTurn).tokens;
    ASSERT_NE(alone, expected) << name;
    {
      const methods::Replay replay(*faulty, expected);
      EXPECT_EQ(run(*faulty, *session, kTurn).tokens, expected) << name;
      // One fault is one place here; left alone, all after it differs.
      EXPECT_GE(replay.trace().disagreements.size(), 2u) << name;
      EXPECT_LE(replay.trace().disagreements.size(), 20u) << name;
    }
    EXPECT_EQ(run(*faulty, *session, kTurn).tokens, alone) << name << ": led no longer";
  }
}

TEST(LedStart, BeginsEveryAnswerAndEndsAStep) {
  const auto model = small_model(3);
  const auto session = make_session(model);
  for (const double temperature : {0.0, 1.0})
    for (const Arm& arm : all_arms())
      for (const size_t length : {size_t{1}, size_t{2}, size_t{13}}) {
        Turn turn = kTurn;
        turn.sampling.temperature = temperature;
        turn.sampling = sampling_for(arm, turn.sampling);
        // A text that repeats, so that drafts are accepted on the way, and not the model's own.
        Tokens start;
        for (size_t i = 0; i < length; ++i) start.push_back(static_cast<int32_t>(1 + (i + 2) % 3));
        const auto method = build_arm(arm, model);
        start[0] = run(*method, *session, turn).tokens[0];  // the prefill's
        const methods::LedStart led(*method, start);
        const auto answer = run(*method, *session, turn);
        ASSERT_GT(answer.tokens.size(), length) << arm.name;
        EXPECT_EQ(Tokens(answer.tokens.begin(), answer.tokens.begin() + static_cast<int>(length)),
                  start)
            << arm.name;
        size_t at = 1;
        for (const auto& step : answer.steps) {
          if (at >= length) break;
          at += static_cast<size_t>(step.emitted);
        }
        EXPECT_EQ(at, length) << arm.name << ": a step goes on after the start";
      }
}

// A fault that is planted acts after the start only, and the hook is given back.
TEST(LedStart, LeavesFaultsToTheFreeSteps) {
  const auto model = small_model(2);
  const auto session = make_session(model);
  const Tokens own = run(*build_method("ar", model), *session, kTurn).tokens;
  const auto faulty = methods::plant_fault(build_method("pld:k=4", model), "wrong-accept:100%");
  const Tokens alone = run(*faulty, *session, kTurn).tokens;
  ASSERT_NE(Tokens(alone.begin(), alone.begin() + 40), Tokens(own.begin(), own.begin() + 40));
  const Tokens start(own.begin(), own.begin() + 40);
  {
    const methods::LedStart led(*faulty, start);
    const Tokens answer = run(*faulty, *session, kTurn).tokens;
    EXPECT_EQ(Tokens(answer.begin(), answer.begin() + 40), start);
    EXPECT_NE(answer, own) << "the fault shows after it";
  }
  EXPECT_EQ(run(*faulty, *session, kTurn).tokens, alone);
}

TEST(Replay, RefusesSampling) {
  const auto model = small_model(2);
  const auto session = make_session(model);
  const auto method = build_method("pld", model);
  Turn turn = kTurn;
  turn.sampling = {1.0, 0, 1.0};
  const Tokens reference(64, 1);
  const methods::Replay replay(*method, reference);
  EXPECT_THROW(run(*method, *session, turn), base::InternalError);
}

}  // namespace
}  // namespace evalrun::tests::replay_test
