// Suites planned, run, stored and run again: tiny models, nothing faked.
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/clock.h"
#include "runners/measure/runner.h"
#include "tests/formats/test_files.h"
#include "tests/methods/support/adapters.h"
#include "tests/runners/fakes.h"

namespace evalrun::runners {
namespace {

class WholeRun : public ::testing::Test {
 protected:
  engine::testing::TempFolder folder_;
};

TEST_F(WholeRun, OnATinyModelIsLosslessAndResumes) {
  const std::string file = folder_.file("run.jsonl");
  std::ofstream(file) << R"({"id": "a", "turns": ["abcabcabcabc", "and again"]})"
                      << "\n"
                      << R"({"id": "b", "turns": ["xyxyxyxyxyxy"]})"
                      << "\n";
  PlanRequest request;
  request.suite.tasks = {{.task = "jsonl:" + file}};
  request.suite.methods = {"pld", "sps:draft=layers:1"};
  request.suite.max_new = 12;
  request.suite.repeats = 2;
  request.suite.warmup = 1;
  request.target = tests::tiny_model(512);
  request.session.n_threads = 1;
  complete_suite(request.suite, "test");
  results::ResultStore store(folder_.file("run.db"));
  base::SteadyClock clock;
  const RunOutcome outcome = run_suite(request, store, clock, {});
  EXPECT_EQ(outcome.measured, 2 * 4 * 2);
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_EQ(run_suite(request, store, clock, {}).measured, 0);
  store.query("SELECT count(DISTINCT tokens_hash) FROM generation GROUP BY prompt_id", {},
              [](const results::Row& row) {
                EXPECT_EQ(row.integer(0), 1);  // all arms and repeats give the same tokens
                return true;
              });
  request.nonce = "other";  // --no-resume
  EXPECT_EQ(run_suite(request, store, clock, {}).measured, 16);
}

TEST_F(WholeRun, OfATunedTargetIsLosslessAgainstItsPlainDecoding) {
  const std::string file = folder_.file("run.jsonl");
  const std::string adapter = folder_.file("tuned.safetensors");
  std::ofstream(file) << R"({"id": "a", "turns": ["abcabcabcabc"]})"
                      << "\n"
                      << R"({"id": "b", "turns": ["xyxyxyxyxyxy"]})"
                      << "\n";
  PlanRequest request;
  request.target = tests::tiny_model(512);
  tests::AdapterFile tuned = tests::random_adapter("space_tuned", *request.target, 7);
  tuned.metadata["training"] = R"({"overlap": {"gsm8k": 3, "mbpp": 0}})";
  tuned.write(adapter);
  request.suite.tasks = {{.task = "jsonl:" + file}};
  request.suite.methods = {"space:adapter=" + adapter + ",k=2"};
  request.suite.aa = false;
  request.suite.max_new = 12;
  request.suite.warmup = 1;
  request.session.n_threads = 1;
  complete_suite(request.suite, "test");
  results::ResultStore store(folder_.file("run.db"));
  base::SteadyClock clock;
  const RunOutcome outcome = run_suite(request, store, clock, {});
  EXPECT_EQ(outcome.measured, 2 * 3);  // ar, its tuned twin, space
  EXPECT_EQ(outcome.failed, 0);
  int arms = 0;
  store.query("SELECT a.method, i.identical_share FROM v_identity i JOIN arm a ON a.id = i.arm_id",
              {}, [&](const results::Row& row) {
                EXPECT_EQ(row.number(1), 1) << row.text(0);
                ++arms;
                return true;
              });
  EXPECT_EQ(arms, 3);
  // Both arms of the tuned target say what test prompts it was trained on.
  std::vector<std::string> trained;
  store.query(
      "SELECT method FROM arm WHERE json_extract(settings, '$.adapter_overlap') = ? "
      "ORDER BY id",
      {std::string(R"({"gsm8k":3})")}, [&](const results::Row& row) {
        trained.push_back(row.text(0));
        return true;
      });
  EXPECT_EQ(trained, (std::vector<std::string>{"ar_tuned", "space"}));
  EXPECT_EQ(run_suite(request, store, clock, {}).measured, 0);
}

}  // namespace
}  // namespace evalrun::runners
