// Whole runs with arms of synthetic acceptance: tiny models, nothing faked. They know plain
// decoding's answer whoever measured it, alone and in batches, greedy and sampled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "results/generation_queries.h"
#include "runners/measure/known_answers.h"
#include "runners/measure/runner.h"
#include "runners/plan/estimate.h"
#include "tests/formats/test_files.h"
#include "tests/runners/fakes.h"
#include "tests/runners/stored_rows.h"

namespace evalrun::runners {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class SyntheticAcceptanceRun : public ::testing::Test {
 protected:
  SyntheticAcceptanceRun() : store_(folder_.file("run.db")) {
    const std::string file = folder_.file("run.jsonl");
    std::ofstream(file) << R"({"id": "a", "turns": ["abcabcabcabc", "and again"]})"
                        << "\n"
                        << R"({"id": "b", "turns": ["xyxyxyxyxyxy"]})"
                        << "\n"
                        << R"({"id": "c", "turns": ["one more"]})"
                        << "\n";
    request_.suite.tasks = {{.task = "jsonl:" + file}};
    request_.suite.methods = {"oracle:alpha=1,k=3", "oracle:alpha=0,k=3"};
    request_.suite.max_new = 17;
    request_.suite.warmup = 1;
    request_.suite.aa = false;
    request_.target = tests::tiny_model(512);
    request_.session.n_threads = 1;
  }
  RunOutcome run(const RunnerOptions& options = {}) {
    complete_suite(request_.suite, "test");
    return run_suite(request_, store_, clock_, options);
  }
  std::vector<std::string> rows(const std::string& sql) const { return stored_rows(store_, sql); }
  std::vector<int64_t> ids(const std::string& sql) const {
    std::vector<int64_t> found;
    store_.query(sql, {}, [&](const results::Row& row) {
      found.push_back(row.integer(0));
      return true;
    });
    return found;
  }
  // Draft tokens of the arms of a label's beginning, and how many of them were accepted.
  std::pair<int64_t, int64_t> drafted_and_accepted(const std::string& label) const {
    std::pair<int64_t, int64_t> sums;
    for (const int64_t id : ids("SELECT id FROM generation")) {
      const auto generation = results::find_generation(store_, id);
      if (!generation || !generation->arm_label.starts_with(label)) continue;
      for (const results::StoredTurn& turn : generation->turns)
        for (const results::StepRecord& step : turn.steps)
          sums.first += step.drafted, sums.second += step.accepted;
    }
    return sums;
  }
  void expect_sound() {
    EXPECT_THAT(rows("SELECT DISTINCT status FROM generation"), ElementsAre("ok"));
    EXPECT_THAT(rows("SELECT count(DISTINCT tokens_hash) FROM generation GROUP BY prompt_id, "
                     "sample"),
                Each("1"));
    const auto [drafted, accepted] = drafted_and_accepted("oracle:alpha=1");
    EXPECT_GT(drafted, 0);
    EXPECT_EQ(accepted, drafted) << "what is always right";
    const auto [wrong, taken] = drafted_and_accepted("oracle:alpha=0");
    EXPECT_GT(wrong, drafted);
    EXPECT_EQ(taken, 0) << "what never is";
  }

  engine::testing::TempFolder folder_;
  PlanRequest request_;
  results::ResultStore store_;
  base::SteadyClock clock_;
};

TEST_F(SyntheticAcceptanceRun, DraftsPlainDecodingsAnswerAndIsMarked) {
  EXPECT_EQ(run().failed, 0);
  expect_sound();
  EXPECT_THAT(rows("SELECT method, json_extract(settings, '$.synthetic') FROM arm ORDER BY id"),
              ElementsAre("ar ", "oracle acceptance", "oracle acceptance"));
}

TEST_F(SyntheticAcceptanceRun, KnowsSampledAnswersOfEverySample) {
  request_.suite.sampling.temperature = 1;
  request_.suite.samples = 2;
  EXPECT_EQ(run().failed, 0);
  expect_sound();
}

TEST_F(SyntheticAcceptanceRun, KnowsTheAnswersOfBatches) {
  for (const methods::BatchMode mode :
       {methods::BatchMode::kStatic, methods::BatchMode::kContinuous}) {
    request_.suite.batches = {.sizes = {2}, .mode = mode};
    request_.nonce = mode == methods::BatchMode::kStatic ? "" : "other";
    EXPECT_EQ(run().failed, 0);
    expect_sound();
    store_.execute("DELETE FROM run");
  }
}

TEST_F(SyntheticAcceptanceRun, IsLedInAReplay) {
  request_.suite.replay = true;
  EXPECT_EQ(run().failed, 0);
  expect_sound();
}

TEST_F(SyntheticAcceptanceRun, TakesWhatIsStoredAndDecodesTheRestOnce) {
  ASSERT_EQ(run().failed, 0);
  const RunPlan plan = make_plan(request_);
  const std::vector<int64_t> arms = ids("SELECT id FROM arm ORDER BY id");
  const std::vector<int64_t> prompts = ids("SELECT id FROM prompt ORDER BY id");
  KnownAnswers stored(plan, store_, arms, prompts);
  const auto nobody = []() -> Answers {
    ADD_FAILURE() << "decoded again";
    return {};
  };
  EXPECT_EQ(stored.find(1, 0, 0), nullptr);
  const Answers& first = stored.of(1, 0, 0, nobody);
  ASSERT_EQ(first.size(), 2u) << "turns";
  EXPECT_EQ(first[0].size(), 17u);
  EXPECT_EQ(stored.find(2, 0, 0), &first) << "the same model's";
  int decoded = 0;
  const Answers other = {std::vector<int32_t>{7, 8}};
  const auto decode = [&] {
    ++decoded;
    return other;
  };
  EXPECT_EQ(stored.of(1, 0, 1, decode), other) << "of a sample that is not stored";
  EXPECT_EQ(stored.of(2, 0, 1, decode), other);
  EXPECT_EQ(decoded, 1);
  // What failed, or what a planted fault has touched, is not plain decoding's answer.
  store_.execute("UPDATE generation SET fault = 'slow'");
  KnownAnswers anew(plan, store_, arms, prompts);
  EXPECT_EQ(anew.of(1, 0, 0, decode), other);
}

TEST_F(SyntheticAcceptanceRun, ThePlanCountsTheAnswers) {
  complete_suite(request_.suite, "test");
  RunPlan plan = make_plan(request_);
  const Calibration calibration = {.prefill_s_per_token = 0, .step_s = 1};
  const double with = estimate_seconds(plan, calibration);
  plan.suite.samples = 2;
  EXPECT_DOUBLE_EQ(estimate_seconds(plan, calibration), 2 * with);
  plan.suite.samples = 1;
  for (PlannedArm& arm : plan.arms) arm.needs_answer = false;
  EXPECT_DOUBLE_EQ(with, estimate_seconds(plan, calibration) * 4 / 3) << "as a fourth arm";
}

}  // namespace
}  // namespace evalrun::runners
