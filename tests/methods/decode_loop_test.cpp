// The one loop: stop rule, truncation, counting, timing, what it asks of the session.
#include "methods/decode_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/methods/support/drafters.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::decode_loop_test {
namespace {

using methods::TokenTree;
using results::StopReason;
using testing::ElementsAre;

constexpr int kVocab = 50;

// Greedy text counts upwards: after t comes (t + 1) % 50.
LogitTable counting_table() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % kVocab)] = 1;
  };
}

// Drafts the next k numbers, which are right.
std::unique_ptr<methods::DecodingMethod> counting_method(int k) {
  return methods::make_speculative_method(std::make_unique<ScriptedDrafter>(
      [k](std::span<const int32_t> sequence, int max_depth, TokenTree& tree) {
        int node = 0;
        for (int i = 0; i < std::min(k, max_depth); ++i)
          node = tree.add((sequence.back() + 1 + i) % kVocab, node);
      }));
}

std::vector<int> column(const results::TurnRecord& turn, int32_t results::StepRecord::*field) {
  std::vector<int> values;
  for (const auto& step : turn.steps) values.push_back(step.*field);
  return values;
}

class DecodeLoop : public testing::Test {
 protected:
  FakeSession session_{kVocab, 64, counting_table()};
};

TEST_F(DecodeLoop, CountsStepsAndTokens) {
  const auto turn = run(*counting_method(3), session_, {{1, 2, 3}, 0, 10});
  EXPECT_THAT(turn.tokens, ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  EXPECT_EQ(turn.stop, StopReason::kLimit);
  EXPECT_EQ(turn.n_prompt_tokens, 3);
  // Nine tokens after the first: 4 + 4 + 1, the last step drafts nothing.
  EXPECT_THAT(column(turn, &results::StepRecord::emitted), ElementsAre(4, 4, 1));
  EXPECT_THAT(column(turn, &results::StepRecord::accepted), ElementsAre(3, 3, 0));
  EXPECT_THAT(column(turn, &results::StepRecord::drafted), ElementsAre(3, 3, 0));
  EXPECT_THAT(column(turn, &results::StepRecord::drafted_depth), ElementsAre(3, 3, 0));
  EXPECT_THAT(column(turn, &results::StepRecord::rows), ElementsAre(4, 4, 1));
  EXPECT_THAT(column(turn, &results::StepRecord::target_forwards), ElementsAre(1, 1, 1));
}

// Acceptance by place of the tree: depth and rank among siblings of every node whose parent was
// kept, whether it stood at the end of the path or beside it.
TEST_F(DecodeLoop, CountsNodesByDepthAndRank) {
  const auto method = methods::make_speculative_method(std::make_unique<ScriptedDrafter>(
      [](std::span<const int32_t> sequence, int max_depth, TokenTree& tree) {
        if (max_depth < 3) return;
        const int32_t next = sequence.back() + 1;  // below 50 throughout
        tree.add(0, 0);
        tree.add(1, 0);
        const int right = tree.add(next, 0);         // rank 2
        tree.add(next + 1, 1);                       // its parent is refused: never tested
        tree.add(2, right);                          // depth 2, rank 0
        const int deep = tree.add(next + 1, right);  // rank 1
        tree.add(3, right);                          // rank 2
        tree.add(4, deep);                           // depth 3, rank 0, refused
      }));
  const auto turn = run(*method, session_, {{1, 2, 3}, 0, 8});
  EXPECT_THAT(turn.tokens, ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(column(turn, &results::StepRecord::accepted), ElementsAre(2, 2, 0));
  EXPECT_EQ(turn.nodes, (std::vector<results::NodeCount>{{1, 0, 2, 0},
                                                         {1, 1, 2, 0},
                                                         {1, 2, 2, 2},
                                                         {2, 0, 2, 0},
                                                         {2, 1, 2, 2},
                                                         {2, 2, 2, 0},
                                                         {3, 0, 2, 0}}));
}

// Logits cost a write of the vocabulary per row; only sampling needs them.
TEST_F(DecodeLoop, AsksForLogitsOnlyWhenSampling) {
  Turn turn{{1, 2, 3}, 0, 10};
  run(*counting_method(3), session_, turn);
  EXPECT_EQ(session_.logit_rows, 0);
  EXPECT_EQ(session_.top_rows, 1 + 4 + 4 + 1);
  turn.sampling.temperature = 1.0;
  run(*counting_method(3), session_, turn);
  EXPECT_GT(session_.logit_rows, 0);
  EXPECT_EQ(session_.top_rows, 1 + 4 + 4 + 1);
}

// A target that draws all rows at once gives the tokens of one whose logits are drawn from on the
// way, and logits are asked for only where a draft was drawn.
TEST_F(DecodeLoop, DrawsInAdvanceAreThoseOnTheWay) {
  FakeSession on_the_way{kVocab, 64, markov_table(3, 2, 3)},
      in_advance{kVocab, 64, markov_table(3, 2, 3)};
  in_advance.cheap_draws = true;
  base::Rng rng(2);
  for (int i = 0; i < 50; ++i) {
    Turn turn{random_tokens(rng, 6, kVocab), 0, 20};
    turn.sampling = {1.0, i % 3 == 0 ? 9 : 0, i % 2 == 0 ? 0.9 : 1.0};
    turn.seed = rng.next();
    const auto method = [&] {
      return methods::make_speculative_method(
          std::make_unique<RandomTreeDrafter>(9, kVocab, static_cast<uint64_t>(i)));
    };
    const auto expected = run(*method(), on_the_way, turn), got = run(*method(), in_advance, turn);
    ASSERT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(column(got, &results::StepRecord::accepted),
              column(expected, &results::StepRecord::accepted));
  }
  EXPECT_EQ(in_advance.logit_rows, 0);
  EXPECT_GT(in_advance.drawn_rows, 50 * 10);
  EXPECT_EQ(on_the_way.drawn_rows, 50);  // after the prompts
  EXPECT_GT(on_the_way.logit_rows, 50 * 10);
}

TEST_F(DecodeLoop, DraftsNoDeeperThanTheLimit) {
  const auto turn = run(*counting_method(8), session_, {{1}, 0, 4});
  EXPECT_THAT(turn.tokens, ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(column(turn, &results::StepRecord::drafted), ElementsAre(2));
  EXPECT_THAT(column(turn, &results::StepRecord::emitted), ElementsAre(3));
}

TEST_F(DecodeLoop, StopTokenInsideADraftEndsTheTurnAndCountsOnce) {
  const auto turn = run(*counting_method(5), session_, {{1}, 0, 20, {5}});
  EXPECT_THAT(turn.tokens, ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(turn.stop, StopReason::kStopToken);
  // All three kept tokens of the step are draft tokens; the bonus is cut.
  EXPECT_THAT(column(turn, &results::StepRecord::emitted), ElementsAre(3));
  EXPECT_THAT(column(turn, &results::StepRecord::accepted), ElementsAre(3));
  EXPECT_THAT(column(turn, &results::StepRecord::drafted), ElementsAre(5));
}

TEST_F(DecodeLoop, StopTokenAsLastDraftTokenCutsOnlyTheBonus) {
  const auto turn = run(*counting_method(3), session_, {{1}, 0, 20, {5}});
  EXPECT_THAT(turn.tokens, ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(column(turn, &results::StepRecord::emitted), ElementsAre(3));
  EXPECT_THAT(column(turn, &results::StepRecord::accepted), ElementsAre(3));
}

TEST_F(DecodeLoop, StopTokenAsBonusCutsNothing) {
  const auto turn = run(*counting_method(2), session_, {{1}, 0, 20, {5, 40}});
  EXPECT_THAT(turn.tokens, ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(column(turn, &results::StepRecord::emitted), ElementsAre(3));
  EXPECT_THAT(column(turn, &results::StepRecord::accepted), ElementsAre(2));
}

TEST_F(DecodeLoop, StopTokensOfThePromptAndRepeatedOnesDoNotConfuse) {
  // 3 stands in the prompt; the first new one ends the turn although the prompt's came before.
  const auto turn = run(*counting_method(4), session_, {{3, 3, 1}, 0, 20, {3}});
  EXPECT_THAT(turn.tokens, ElementsAre(2, 3));
  EXPECT_EQ(turn.stop, StopReason::kStopToken);
}

TEST_F(DecodeLoop, FirstTokenMayEndTheTurnWithoutAStep) {
  const auto stopped = run(*counting_method(4), session_, {{1, 2}, 0, 20, {3}});
  EXPECT_THAT(stopped.tokens, ElementsAre(3));
  EXPECT_TRUE(stopped.steps.empty());
  EXPECT_EQ(stopped.stop, StopReason::kStopToken);
  EXPECT_EQ(stopped.decode_ns, 0);
  const auto limited = run(*counting_method(4), session_, {{1, 2}, 0, 1});
  EXPECT_THAT(limited.tokens, ElementsAre(3));
  EXPECT_TRUE(limited.steps.empty());
  EXPECT_EQ(limited.stop, StopReason::kLimit);
}

TEST_F(DecodeLoop, FullContextEndsEveryMethodAtTheSameToken) {
  for (int prompt_length : {1, 5, 9, 10}) {
    for (int k : {0, 1, 3, 30}) {
      FakeSession session(kVocab, 10, counting_table());
      const auto turn =
          run(*counting_method(k), session, {Tokens(static_cast<size_t>(prompt_length), 1), 0, 40});
      EXPECT_EQ(turn.stop, StopReason::kContextFull) << k;
      // The session fills up; the last token needs no place in it.
      EXPECT_EQ(turn.tokens.size(), static_cast<size_t>(10 - prompt_length + 1)) << k;
      EXPECT_EQ(session.length(0), 10);
    }
  }
}

TEST_F(DecodeLoop, MethodsThatOvershootAreCutAtTheLimit) {
  class Overshooting final : public methods::DecodingMethod {
   public:
    void start(const methods::GenerationContext&) override {}
    void begin_step() override {}
    engine::ForwardRequest rows() override { return {.rows = {&row_, 1}}; }
    std::span<const int> accept(const engine::ForwardResult&) override { return {&root_, 1}; }
    methods::StepOutcome finish_step() override {
      methods::StepOutcome outcome;
      outcome.tokens = tokens_;
      outcome.accepted = 3;
      return outcome;
    }

   private:
    engine::Row row_{.token = 2};
    int root_ = 0;
    std::vector<int32_t> tokens_ = {7, 8, 9, 10};
  };
  Overshooting method;
  const auto turn = run(method, session_, {{1}, 0, 4});
  EXPECT_THAT(turn.tokens, ElementsAre(2, 7, 8, 9));
  EXPECT_EQ(turn.steps.back().emitted, 3);
  EXPECT_EQ(turn.steps.back().accepted, 3);
}

TEST_F(DecodeLoop, PrefillIsTheSameCallsForEveryMethodAndTurn) {
  for (int k : {0, 4}) {
    FakeSession session(kVocab, 64, counting_table());
    const auto method = counting_method(k);
    const auto first = run(*method, session, {{9, 8, 7, 6, 5}, 0, 6});
    EXPECT_THAT(session.prefills, ElementsAre(4));  // the last prompt token takes the decode path
    EXPECT_THAT(first.tokens, ElementsAre(6, 7, 8, 9, 10, 11));
    // Second turn: the answer and the new question are prefilled after the first prompt.
    Tokens second = {9, 8, 7, 6, 5};
    second.insert(second.end(), first.tokens.begin(), first.tokens.end());
    second.insert(second.end(), {30, 31});
    run(*method, session, {second, 5, 3});
    EXPECT_THAT(session.prefills, ElementsAre(4, 7));
    EXPECT_EQ(Tokens(session.committed().begin(), session.committed().begin() + 13), second);
    // A one-token prompt has nothing to prefill.
    run(*method, session, {{1}, 0, 3});
    EXPECT_THAT(session.prefills, ElementsAre(4, 7));
  }
}

TEST_F(DecodeLoop, RefusesWhatCannotWork) {
  const auto method = counting_method(2);
  EXPECT_THROW(run(*method, session_, {{}, 0, 3}), base::Error);
  try {
    run(*method, session_, {Tokens(65, 1), 0, 3});
    FAIL() << "a prompt longer than the context";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.message(), testing::HasSubstr("65 tokens, the context holds 64"));
    EXPECT_FALSE(e.hint().empty());
  }
  EXPECT_THROW(run(*method, session_, {{1}, 0, 3, {}, {-1.0, 0, 1.0}}), base::Error);
  EXPECT_THROW(run(*method, session_, {{1, 2}, 0, 0}), base::InternalError);
  EXPECT_THROW(run(*method, session_, {{1, 2, 3}, 2, 3}), base::InternalError)
      << "nothing in the session to keep";
  EXPECT_THROW(run(*method, session_, {{1, 2}, 2, 3}), base::InternalError);
}

TEST_F(DecodeLoop, RefusesDraftsDeeperThanAskedFor) {
  const auto greedy_drafter = methods::make_speculative_method(std::make_unique<ScriptedDrafter>(
      [](std::span<const int32_t>, int max_depth, TokenTree& tree) {
        for (int i = 0; i <= max_depth; ++i) tree.add(0, i);
      }));
  EXPECT_THROW(run(*greedy_drafter, session_, {{1}, 0, 5}), base::InternalError);
}

TEST_F(DecodeLoop, TreesLargerThanTheRoomLoseTheirLastNodes) {
  // Twenty wrong siblings, then the right one: cut off where only six rows are left.
  const auto wide = [] {
    return methods::make_speculative_method(std::make_unique<ScriptedDrafter>(
        [](std::span<const int32_t> sequence, int, TokenTree& tree) {
          for (int i = 0; i < 20; ++i) tree.add((sequence.back() + 2 + i) % kVocab, 0);
          tree.add((sequence.back() + 1) % kVocab, 0);
        }));
  };
  const auto roomy = run(*wide(), session_, {{1}, 0, 4});
  EXPECT_THAT(column(roomy, &results::StepRecord::accepted), ElementsAre(1, 0));
  FakeSession narrow(kVocab, 7, counting_table());
  const auto cut = run(*wide(), narrow, {{1}, 0, 4});
  EXPECT_EQ(cut.tokens, roomy.tokens);
  EXPECT_THAT(column(cut, &results::StepRecord::rows), ElementsAre(6, 5, 1));
  EXPECT_THAT(column(cut, &results::StepRecord::accepted), ElementsAre(0, 0, 0));
}

// Advances by one microsecond at each look.
class TickingClock final : public base::Clock {
 public:
  int64_t now_ns() override { return now_ += 1000; }

 private:
  int64_t now_ = 0;
};

TEST_F(DecodeLoop, TimesAddUp) {
  methods::TurnRequest request;
  const Tokens prompt = {1, 2};
  request.prompt = prompt;
  request.max_new = 9;
  TickingClock clock;
  const auto turn = methods::decode_turn(*counting_method(3), session_, request, clock);
  EXPECT_EQ(turn.prefill_ns, 1000);
  EXPECT_EQ(turn.draft_prefill_ns, 1000);
  int64_t in_steps = 0;
  for (const auto& s : turn.steps) {
    EXPECT_EQ(s.draft_ns, 2000);  // drafting, and the drafter's clearing up after the commit
    EXPECT_EQ(s.verify_ns, 1000);
    EXPECT_EQ(s.commit_ns, 1000);
    EXPECT_EQ(s.other_ns, 2000);
    in_steps += s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns;
  }
  // Between two steps the clock is read once more.
  EXPECT_EQ(turn.decode_ns, in_steps + 1000 * static_cast<int64_t>(turn.steps.size()));
}

class HandClock final : public base::Clock {
 public:
  int64_t now_ns() override { return now; }
  int64_t now = 0;
};

// What is done with tokens as they come is in no time of the turn.
TEST_F(DecodeLoop, HandsTokensOnAsTheyCome) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  std::vector<std::vector<int32_t>> pieces;
  HandClock clock;
  methods::TurnRequest request;
  request.prompt = prompt;
  request.max_new = 10;
  request.on_tokens = [&](std::span<const int32_t> tokens) {
    pieces.emplace_back(tokens.begin(), tokens.end());
    clock.now += 1'000'000;
  };
  const auto method = counting_method(3);
  const auto turn = methods::decode_turn(*method, session_, request, clock);
  EXPECT_THAT(pieces, ElementsAre(ElementsAre(4), ElementsAre(5, 6, 7, 8),
                                  ElementsAre(9, 10, 11, 12), ElementsAre(13)));
  EXPECT_EQ(turn.prefill_ns + turn.draft_prefill_ns + turn.decode_ns, 0);
  for (const auto& step : turn.steps)
    EXPECT_EQ(step.draft_ns + step.verify_ns + step.commit_ns + step.other_ns, 0);
}

TEST_F(DecodeLoop, WhoTakesTokensCanEndTheTurn) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  int pieces = 0;
  HandClock clock;
  methods::TurnRequest request;
  request.prompt = prompt;
  request.max_new = 10;
  request.on_tokens = [&](std::span<const int32_t>) {
    if (++pieces == 2) throw base::usage_error("enough");
  };
  const auto method = counting_method(3);
  EXPECT_THROW(methods::decode_turn(*method, session_, request, clock), base::Error);
  EXPECT_EQ(pieces, 2);
  // The next turn knows nothing of it.
  request.on_tokens = {};
  EXPECT_EQ(methods::decode_turn(*method, session_, request, clock).tokens.size(), 10u);
}

}  // namespace
}  // namespace evalrun::tests::decode_loop_test
