// Whole runs at several batch sizes: tiny models, nothing faked. Every arm gives plain decoding's
// tokens; what is interrupted goes on; what stores say of batches holds together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "runners/measure/runner.h"
#include "tests/formats/test_files.h"
#include "tests/runners/fakes.h"
#include "tests/runners/stored_rows.h"
#include "tests/sample.h"

namespace evalrun::runners {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kBatchPrompts = 6;

class BatchRun : public ::testing::Test {
 protected:
  BatchRun() : store_(folder_.file("run.db")) {
    const std::string file = folder_.file("run.jsonl");
    std::ofstream out(file);
    for (int i = 0; i < kBatchPrompts; ++i) {
      const std::string text = i % 2 == 0 ? "abcabcabcabcabc" : "xyxyxy";
      out << fmt::format(R"({{"id": "p{0}", "turns": ["{1}{0}"{2}]}})", i, text,
                         i % 3 == 0 ? R"(, "and again")" : "")
          << "\n";
    }
    request_.suite.tasks = {{.task = "jsonl:" + file}};
    request_.suite.methods = {"pld", "sps:draft=layers:1"};
    request_.suite.max_new = 14;
    request_.suite.warmup = 1;
    request_.suite.batches.sizes = {1, 2, 4};
    request_.target = tests::tiny_model(512);
    request_.session.n_threads = 1;
  }
  RunOutcome run(const RunnerOptions& options = {}) {
    complete_suite(request_.suite, "test");
    return run_suite(request_, store_, clock_, options);
  }
  // One line per row.
  std::vector<std::string> rows(const std::string& sql) const { return stored_rows(store_, sql); }
  // A whole run of `arms` arms.
  void expect_sound(int arms) {
    EXPECT_THAT(rows("SELECT count(*), sum(status <> 'ok') FROM generation"),
                ElementsAre(fmt::format("{} 0", arms * kBatchPrompts)));
    EXPECT_THAT(rows("SELECT count(DISTINCT tokens_hash) FROM generation GROUP BY prompt_id"),
                Each("1"))
        << "all arms, whatever their batch";
    EXPECT_THAT(rows("SELECT problem FROM v_accounting"), ElementsAre());
    EXPECT_THAT(rows("SELECT DISTINCT a.batch > 1, EXISTS (SELECT 1 FROM batch_turn b WHERE "
                     "b.turn_id = t.id) FROM turn t JOIN generation g ON g.id = t.generation_id "
                     "JOIN arm a ON a.id = g.arm_id ORDER BY 1"),
                ElementsAre("0 0", "1 1"));
    EXPECT_THAT(rows("SELECT DISTINCT max(s.members) <= a.batch, max(b.slot) < a.batch FROM "
                     "batch_step s JOIN batch_turn b ON b.turn_id = s.turn_id JOIN turn t ON t.id "
                     "= s.turn_id JOIN generation g ON g.id = t.generation_id JOIN arm a ON a.id = "
                     "g.arm_id GROUP BY a.id"),
                ElementsAre("1 1"));
    // A conversation stays in its slot and call.
    EXPECT_THAT(rows("SELECT count(DISTINCT b.slot), count(DISTINCT b.call) FROM batch_turn b JOIN "
                     "turn t ON t.id = b.turn_id GROUP BY t.generation_id"),
                Each("1 1"));
  }

  engine::testing::TempFolder folder_;
  PlanRequest request_;
  results::ResultStore store_;
  base::SteadyClock clock_;
};

// Three methods and the A/A arm, at three sizes.
constexpr int kArms = 4 * 3;

TEST_F(BatchRun, EveryBatchGivesTheTokensOfBatchOne) {
  for (const methods::BatchMode mode :
       tests::sample({methods::BatchMode::kStatic, methods::BatchMode::kContinuous}, 1)) {
    request_.suite.batches.mode = mode;
    request_.nonce = mode == methods::BatchMode::kStatic ? "" : "other";
    const RunOutcome outcome = run();
    EXPECT_EQ(outcome.measured, kArms * kBatchPrompts);
    EXPECT_EQ(outcome.failed, 0);
    EXPECT_EQ(outcome.status, RunStatus::kComplete);
    expect_sound(kArms);
    EXPECT_EQ(run().measured, 0);
    store_.execute("DELETE FROM run");
  }
}

TEST_F(BatchRun, SharesOfABatchAddUpToItsSteps) {
  request_.suite.batches.sizes = {2};  // no fillers
  request_.suite.methods = {"pld"};
  run();
  const auto sums = rows(
      "SELECT (SELECT sum(t.decode_ns) FROM turn t JOIN generation g ON g.id = t.generation_id "
      "WHERE g.arm_id = a.id) - (SELECT sum(ns) FROM v_batch_step v WHERE v.arm_id = a.id) FROM "
      "arm a");
  EXPECT_EQ(sums.size(), 3u);
  EXPECT_THAT(sums, Each("0"));
  // Tokens of the members are those of the step.
  EXPECT_THAT(
      rows("SELECT sum(s.emitted) - (SELECT sum(v.emitted) FROM v_batch_step v) FROM step s"),
      ElementsAre("0"));
  // What a sequence waited for its tokens is longer than its share.
  EXPECT_THAT(rows("SELECT min(b.wall_ns >= t.decode_ns), min(b.wall_ns = (SELECT sum(gap_ns) FROM "
                   "batch_step s WHERE s.turn_id = t.id)) FROM turn t JOIN batch_turn b ON "
                   "b.turn_id = t.id"),
              ElementsAre("1 1"));
  EXPECT_THAT(rows("SELECT min(v.wall_ns > 0), min(v.first_token_ns > 0) FROM v_batch_turn v"),
              ElementsAre("1 1"));
}

// What the session holds is the largest batch's.
TEST_F(BatchRun, CachesBelongToTheSlotsOfAnArm) {
  request_.suite.methods = {"ar"};
  request_.suite.aa = false;
  run();
  EXPECT_THAT(rows("SELECT DISTINCT kv_bytes * 1.0 / batch = (SELECT min(kv_bytes) FROM arm) FROM "
                   "arm WHERE kv_bytes > 0"),
              ElementsAre("1"));
  EXPECT_THAT(rows("SELECT count(*) FROM arm WHERE kv_bytes > 0"), ElementsAre("3"));
}

// Throws like a full disk would, after so many generations were stored.
class ThrowingSink final : public ProgressSink {
 public:
  explicit ThrowingSink(int after) : left_(after) {}
  void generation_done(const std::string&, const std::string&, bool) override {
    if (--left_ == 0) throw std::runtime_error("killed");
  }

 private:
  int left_;
};

TEST_F(BatchRun, WhatWasBrokenOffGoesOn) {
  request_.suite.methods = {"pld"};
  for (const methods::BatchMode mode :
       {methods::BatchMode::kStatic, methods::BatchMode::kContinuous}) {
    request_.suite.batches.mode = mode;
    request_.nonce = mode == methods::BatchMode::kStatic ? "" : "other";
    int stored = 0;
    while (true) {
      ThrowingSink sink(3);
      RunnerOptions options;
      options.progress = &sink;
      try {
        const RunOutcome outcome = run(options);
        EXPECT_EQ(outcome.stored_before, stored);
        EXPECT_EQ(outcome.status, RunStatus::kComplete);
        break;
      } catch (const std::runtime_error& e) {
        ASSERT_STREQ(e.what(), "killed");
        stored += 3;
        ASSERT_THAT(rows("SELECT count(*) FROM generation"), ElementsAre(std::to_string(stored)));
        ASSERT_LE(stored, 9 * kBatchPrompts);
      }
    }
    expect_sound(9);
    store_.execute("DELETE FROM run");
  }
}

TEST_F(BatchRun, AStopRequestLeavesABatchUnderWay) {
  request_.suite.methods = {"ar"};
  request_.suite.aa = false;
  request_.suite.warmup = 0;
  request_.suite.batches.sizes = {4};
  int asked = 0;
  RunnerOptions options;
  options.stop = [&] { return ++asked > 8; };
  const RunOutcome first = run(options);
  EXPECT_EQ(first.status, RunStatus::kInterrupted);
  EXPECT_LT(first.measured, kBatchPrompts);
  const RunOutcome second = run();
  EXPECT_EQ(second.status, RunStatus::kComplete);
  EXPECT_EQ(second.stored_before, first.measured);
  EXPECT_EQ(second.stored_before + second.measured, kBatchPrompts);
  EXPECT_THAT(rows("SELECT problem FROM v_accounting"), ElementsAre());
}

// A wave takes long: the limit is looked at between its arms.
TEST_F(BatchRun, OutOfTimeEndsBetweenTwoArmsOfAWave) {
  request_.suite.methods = {"ar", "pld"};
  request_.suite.aa = false;
  request_.suite.warmup = 0;
  request_.suite.batches.sizes = {4};
  RunnerOptions options;
  options.max_time_s = 0.001;
  const RunOutcome first = run(options);
  EXPECT_EQ(first.status, RunStatus::kOutOfTime);
  EXPECT_LE(first.measured, 4) << "one arm's part of the first wave";
  EXPECT_EQ(run().status, RunStatus::kComplete);
}

TEST_F(BatchRun, SampledAnswersDoNotDependOnTheBatch) {
  request_.suite.methods = {"pld"};
  request_.suite.sampling.temperature = 0.8;
  request_.suite.samples = 2;
  const RunOutcome outcome = run();
  EXPECT_EQ(outcome.measured, 9 * kBatchPrompts * 2);
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_THAT(rows("SELECT count(DISTINCT tokens_hash) FROM generation GROUP BY prompt_id, sample"),
              Each("1"));
}

}  // namespace
}  // namespace evalrun::runners
