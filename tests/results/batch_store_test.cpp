// What the store keeps of batches: it comes back as it was, steps are counted once, calls have
// numbers, and gaps in the rows are noticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "results/batch_queries.h"
#include "results/generation_queries.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using tests::TempFolder;

// The i-th step as member `slot` of two took part in it.
BatchStepRecord batch_step_of(int i, int slot) {
  return {.number = 3 + i,
          .members = 2,
          .rows = 10 + i,
          .emitted = 4,
          .ns = 1000 + i,
          .gap_ns = 1000 + i + slot};
}

// Answers to prompt `prompt` by the third arm, decoded in a slot of one call.
GenerationRecord batch_generation(int prompt, int slot, int64_t call) {
  const tests::SyntheticRun run = usual();
  GenerationRecord g = tests::generation(run, run.arms[2], prompt, 0, 0);
  g.batch_call = call;
  BatchTurnRecord& batch = g.turns[0].batch.emplace();
  batch.slot = slot;
  batch.first_token_ns = 70 + slot;
  batch.wall_ns = 9000 + slot;
  for (size_t i = 0; i < g.turns[0].steps.size(); ++i)
    batch.steps.push_back(batch_step_of(static_cast<int>(i), slot));
  return g;
}

class BatchStore : public ::testing::Test {
 protected:
  BatchStore() : store_(folder_.file("a.db")) {
    const tests::SyntheticRun run = usual();
    run_ = store_.add_run(run_record("k"));
    for (const tests::SyntheticArm& arm : run.arms)
      arms_.push_back(store_.add_arm(run_, tests::arm_record(run, arm)));
    for (int i = 0; i < 4; ++i)
      prompts_.push_back(store_.add_prompt(run_, tests::prompt_record("gsm8k", i)));
  }
  int64_t add(int arm, int prompt, const GenerationRecord& g) {
    return store_.add_generation(run_, arms_[static_cast<size_t>(arm)],
                                 prompts_[static_cast<size_t>(prompt)], g, {});
  }

  TempFolder folder_;
  ResultStore store_;
  int64_t run_ = 0;
  std::vector<int64_t> arms_, prompts_;
};

TEST_F(BatchStore, WhatGoesInComesOut) {
  const GenerationRecord g = batch_generation(1, 1, 5);
  const int64_t id = add(2, 1, g);
  const auto stored = find_generation(store_, id);
  ASSERT_TRUE(stored && stored->turns.size() == 1);
  const StoredTurn& turn = stored->turns[0];
  ASSERT_TRUE(turn.batch);
  EXPECT_EQ(turn.batch_call, 5);
  EXPECT_EQ(turn.batch->slot, 1);
  EXPECT_EQ(turn.batch->first_token_ns, 71);
  EXPECT_EQ(turn.batch->wall_ns, 9001);
  ASSERT_EQ(turn.batch->steps.size(), g.turns[0].steps.size());
  for (size_t i = 0; i < turn.batch->steps.size(); ++i) {
    const BatchStepRecord &step = turn.batch->steps[i], &expected = g.turns[0].batch->steps[i];
    EXPECT_EQ(step.number, expected.number);
    EXPECT_EQ(step.members, expected.members);
    EXPECT_EQ(step.rows, expected.rows);
    EXPECT_EQ(step.emitted, expected.emitted);
    EXPECT_EQ(step.ns, expected.ns);
    EXPECT_EQ(step.gap_ns, expected.gap_ns);
  }
  const tests::SyntheticRun run = usual();
  const int64_t alone = add(0, 1, tests::generation(run, run.arms[0], 1, 0, 0));
  EXPECT_FALSE(find_generation(store_, alone)->turns[0].batch);
}

TEST_F(BatchStore, CallsOfAnArmAreNumberedOnFromWhatIsStored) {
  EXPECT_EQ(store_.next_batch_call(arms_[2]), 1);
  add(2, 0, batch_generation(0, 0, 7));
  EXPECT_EQ(store_.next_batch_call(arms_[2]), 8);
  EXPECT_EQ(store_.next_batch_call(arms_[1]), 1) << "of each arm by itself";
}

TEST_F(BatchStore, AStepOfSeveralMembersIsOneStep) {
  add(2, 0, batch_generation(0, 0, 1));
  add(2, 1, batch_generation(1, 1, 1));  // has more steps
  add(2, 2, batch_generation(2, 0, 2));
  const auto steps = [](int prompt) {
    return static_cast<int64_t>(batch_generation(prompt, 0, 1).turns[0].steps.size());
  };
  EXPECT_EQ(integer(store_, "SELECT count(*) FROM v_batch_step WHERE call = 1"), steps(1));
  EXPECT_EQ(integer(store_, "SELECT count(*) FROM v_batch_step WHERE call = 2"), steps(2));
  EXPECT_EQ(text(store_,
                 "SELECT run_id || ' ' || arm_id || ' ' || members || ' ' || rows || ' ' || "
                 "emitted || ' ' || ns FROM v_batch_step WHERE call = 1 AND number = 4"),
            fmt::format("{} {} 2 11 4 1001", run_, arms_[2]));
}

TEST_F(BatchStore, SumsAreOfStepsNotOfMembers) {
  add(2, 0, batch_generation(0, 0, 1));
  add(2, 1, batch_generation(1, 1, 1));
  const tests::SyntheticRun run = usual();
  add(0, 0, tests::generation(run, run.arms[0], 0, 0, 0));
  const auto sums = batch_step_sums(store_, run_);
  ASSERT_EQ(sums.size(), 1u) << "arms that were decoded alone have none";
  const BatchStepSums& found = sums.at(arms_[2]);
  const auto n = static_cast<int64_t>(batch_generation(1, 0, 1).turns[0].steps.size());
  ASSERT_GE(n, static_cast<int64_t>(batch_generation(0, 0, 1).turns[0].steps.size()));
  EXPECT_EQ(found.steps, n);
  EXPECT_EQ(found.members, 2 * n);
  EXPECT_EQ(found.rows, 10 * n + n * (n - 1) / 2);
  EXPECT_EQ(found.emitted, 4 * n);
  EXPECT_EQ(found.ns, 1000 * n + n * (n - 1) / 2);
}

TEST_F(BatchStore, ATurnAloneWaitsForItsOwnWork) {
  const tests::SyntheticRun run = usual();
  GenerationRecord alone = tests::generation(run, run.arms[0], 0, 0, 0);
  alone.turns[0].draft_prefill_ns = 5;
  add(0, 0, alone);
  add(2, 0, batch_generation(0, 1, 1));
  const auto waits = [&](int arm) {
    return text(store_, fmt::format("SELECT task || ' ' || turn || ' ' || n_tokens || ' ' || "
                                    "first_token_ns || ' ' || wall_ns FROM v_batch_turn WHERE "
                                    "arm_id = {}",
                                    arms_[static_cast<size_t>(arm)]));
  };
  EXPECT_EQ(waits(0), fmt::format("gsm8k 0 33 50000000 {}", alone.turns[0].decode_ns + 5));
  EXPECT_EQ(waits(2), "gsm8k 0 33 71 9001");
}

TEST_F(BatchStore, AFailedOneHasNoSteps) {
  GenerationRecord failed = batch_generation(0, 0, 1);
  failed.status = "failed: of course";
  failed.turns.clear(), failed.texts.clear();
  add(2, 0, failed);
  EXPECT_EQ(integer(store_, "SELECT count(*) FROM v_batch_turn"), 0);
  EXPECT_EQ(store_.next_batch_call(arms_[2]), 1);
}

TEST_F(BatchStore, MissingStepsAreAProblem) {
  add(2, 0, batch_generation(0, 0, 1));
  const auto problem = [&] { return text(store_, "SELECT problem FROM v_accounting"); };
  EXPECT_EQ(problem(), "");
  store_.execute("DELETE FROM batch_step WHERE idx = 2");
  EXPECT_EQ(problem(), "steps of the batch differ from the steps");
  store_.execute("DELETE FROM batch_step");
  store_.execute("DELETE FROM batch_turn");
  EXPECT_EQ(problem(), "") << "it was decoded alone, say the rows";
  store_.execute("INSERT INTO batch_step SELECT turn_id, idx, idx, 1, 1, 1, 1, 1 FROM step");
  EXPECT_EQ(problem(), "steps of the batch differ from the steps");
}

}  // namespace
}  // namespace evalrun::results
