// What the store keeps of servers' answers: it comes back as it was, counters are the server's, and
// what is not known is not counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "results/copy_run.h"
#include "results/endpoint_queries.h"
#include "results/generation_queries.h"
#include "results/queries.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using tests::TempFolder;

// Ten tokens in three pieces; the server tells what it drafted where it is asked to count.
GenerationRecord server_generation(bool counts) {
  GenerationRecord g;
  TurnRecord& t = g.turns.emplace_back();
  t.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  t.n_prompt_tokens = 5, t.prefill_ns = 700, t.decode_ns = 900;
  for (const int n : {3, 4, 2})
    t.steps.push_back({.rows = 0, .emitted = n, .target_forwards = 0, .verify_ns = 300});
  EndpointTurnRecord& server = t.endpoint.emplace();
  server.first_token_ns = 700, server.total_ns = 1650, server.attempts = 2;
  server.prompt_ms = 0.5;
  server.arrivals = {{700, 4}, {1000, 4}, {1600, 2}};
  if (counts) {
    server.drafted = 8, server.accepted = 6, server.drafts = 2, server.target_steps = 3;
    server.cached_tokens = 4;
  }
  g.texts = {"ten"};
  return g;
}

class EndpointStore : public ::testing::Test {
 protected:
  EndpointStore() : store_(folder_.file("a.db")) {
    run_ = store_.add_run(run_record("k"));
    tests::SyntheticArm arm;
    arm.method = "endpoint", arm.lossless = "none", arm.device = "server";
    arm_ = store_.add_arm(run_, tests::arm_record(usual(), arm));
    for (int i = 0; i < 2; ++i)
      prompts_.push_back(store_.add_prompt(run_, tests::prompt_record("gsm8k", i)));
  }
  int64_t add(size_t prompt, bool counts) {
    return store_.add_generation(run_, arm_, prompts_[prompt], server_generation(counts), {});
  }

  TempFolder folder_;
  ResultStore store_;
  int64_t run_ = 0, arm_ = 0;
  std::vector<int64_t> prompts_;
};

TEST_F(EndpointStore, ComesBackAsItWas) {
  const int64_t id = add(0, true);
  const auto found = find_generation(store_, id);
  ASSERT_TRUE(found);
  const StoredTurn& turn = found->turns.at(0);
  ASSERT_TRUE(turn.endpoint);
  EXPECT_EQ(turn.endpoint->first_token_ns, 700);
  EXPECT_EQ(turn.endpoint->total_ns, 1650);
  EXPECT_EQ(turn.endpoint->attempts, 2);
  EXPECT_EQ(turn.endpoint->prompt_ms, 0.5);
  EXPECT_FALSE(turn.endpoint->decode_ms);
  EXPECT_FALSE(turn.endpoint->new_tokens);
  EXPECT_EQ(turn.endpoint->drafted, 8);
  EXPECT_EQ(turn.endpoint->target_steps, 3);
  EXPECT_EQ(turn.endpoint->arrivals,
            (std::vector<EndpointArrival>{{700, 4}, {1000, 4}, {1600, 2}}));
  EXPECT_EQ(turn.steps.size(), 3u) << "the pieces";
}

TEST_F(EndpointStore, CountersAreTheServers) {
  add(0, true);
  EXPECT_EQ(text(store_,
                 "SELECT n_tokens || ' ' || n_steps || ' ' || drafted || ' ' || accepted "
                 "|| ' ' || emitted || ' ' || undrafted || ' ' || rows FROM turn"),
            "10 3 8 6 9 1 0");
  EXPECT_DOUBLE_EQ(real(store_, "SELECT tau FROM v_acceptance"), 3);
  EXPECT_DOUBLE_EQ(real(store_, "SELECT alpha_draft FROM v_acceptance"), 0.75);
  EXPECT_DOUBLE_EQ(real(store_, "SELECT tau FROM v_endpoint_turn"), 3);
  EXPECT_EQ(integer(store_, "SELECT count(*) FROM v_accounting"), 0);
  EXPECT_TRUE(wrong_tallies(store_).empty());
}

TEST_F(EndpointStore, WhatIsNotSaidHasNoTau) {
  add(0, false);
  EXPECT_EQ(integer(store_,
                    "SELECT count(*) FROM v_acceptance WHERE tau IS NULL AND alpha_draft "
                    "IS NULL"),
            1);
  EXPECT_EQ(integer(store_, "SELECT count(*) FROM v_accounting"), 0);
  add(1, true);
  const EndpointTotals totals = endpoint_totals(store_, run_).at(arm_);
  EXPECT_EQ(totals.turns, 2);
  EXPECT_EQ(totals.with_steps, 1);
  EXPECT_EQ(totals.retries, 2);
  EXPECT_EQ(totals.with_cached, 1);
  EXPECT_EQ(totals.cached_tokens, 4);
}

TEST_F(EndpointStore, PiecesWithOtherTokensAreNoticed) {
  add(0, true);
  store_.execute("UPDATE step SET emitted = 1 WHERE idx = 0");
  EXPECT_EQ(text(store_, "SELECT problem FROM v_accounting"),
            "pieces have another number of tokens");
}

TEST_F(EndpointStore, IsCopiedWithItsRun) {
  add(0, true);
  store_.save_baseline("server", run_, "");
  ResultStore target(folder_.file("b.db"));
  copy_baseline(store_, "server", target, "server", false);
  EXPECT_EQ(integer(target, "SELECT total_ns FROM endpoint_turn"), 1650);
  target.execute("DELETE FROM generation");
  EXPECT_EQ(integer(target, "SELECT count(*) FROM endpoint_turn"), 0);
}

TEST(EndpointMigration, FromVersionElevenMakesTheTable) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    tests::fill(store, usual());
    tests::to_version_11(store);
  }
  {
    const ResultStore old(path, ResultStore::Mode::kReadOnly);
    EXPECT_FALSE(has_endpoints(old)) << "read as it is";
    EXPECT_FALSE(find_generation(old, 1)->turns[0].endpoint);
    EXPECT_TRUE(endpoint_totals(old, 1).empty());
  }
  const ResultStore store(path);
  EXPECT_TRUE(has_endpoints(store));
  EXPECT_TRUE(std::filesystem::exists(path + ".bak-v11"));
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_endpoint_turn"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
}

}  // namespace
}  // namespace evalrun::results
