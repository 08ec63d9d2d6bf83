// Whole runs in which every arm is made to follow plain decoding's text: tiny models, nothing
// faked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "runners/measure/runner.h"
#include "tests/formats/test_files.h"
#include "tests/methods/support/adapters.h"
#include "tests/runners/fakes.h"
#include "tests/runners/stored_rows.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReplayRun : public ::testing::Test {
 protected:
  ReplayRun() : store_(folder_.file("run.db")) {
    const std::string file = folder_.file("run.jsonl");
    std::ofstream(file) << R"({"id": "a", "turns": ["abcabcabcabc", "and again"]})"
                        << "\n"
                        << R"({"id": "b", "turns": ["xyxyxyxyxyxy"]})"
                        << "\n";
    request_.suite.tasks = {{.task = "jsonl:" + file}};
    request_.suite.methods = {"pld", "sps:draft=layers:1"};
    request_.suite.max_new = 24;
    request_.suite.repeats = 2;
    request_.suite.warmup = 1;
    request_.suite.replay = true;
    request_.target = tests::tiny_model(512);
    request_.session.n_threads = 1;
  }
  RunOutcome run(const RunnerOptions& options = {}) {
    complete_suite(request_.suite, "test");
    return run_suite(request_, store_, clock_, options);
  }
  // One line per row.
  std::vector<std::string> rows(const std::string& sql) const { return stored_rows(store_, sql); }
  // By arm: places asked, those that differ.
  std::vector<std::string> divergences() const {
    return rows(
        "SELECT a.method || ' ' || a.role, sum(asked), sum(differing) FROM v_divergence v JOIN arm "
        "a ON a.id = v.arm_id GROUP BY a.id ORDER BY a.id");
  }

  engine::testing::TempFolder folder_;
  PlanRequest request_;
  results::ResultStore store_;
  base::SteadyClock clock_;
};

TEST_F(ReplayRun, AnHonestMethodWantsNoOtherTokenAndIsTimed) {
  const RunOutcome outcome = run();
  EXPECT_EQ(outcome.measured, 2 * 4 * 2);
  EXPECT_EQ(outcome.failed, 0);
  // Three turns of 24 tokens in two repeats; the first of each comes from the prefill.
  EXPECT_THAT(divergences(), ElementsAre("ar baseline 138 0", "ar aa 138 0", "pld method 138 0",
                                         "sps method 138 0"));
  EXPECT_THAT(rows("SELECT count(*) FROM v_accounting"), ElementsAre("0"));
  EXPECT_THAT(rows("SELECT min(decode_ns) > 0, min(verify_ns) > 0, min(prefill_ns) > 0 FROM turn"),
              ElementsAre("1 1 1"));
  EXPECT_THAT(rows("SELECT DISTINCT json_extract(settings, '$.replay') FROM arm"),
              ElementsAre("reference"));
  // Plain decoding's own text, as it is without a replay.
  const auto texts = [&](int64_t run_id) {
    return rows(
        fmt::format("SELECT DISTINCT p.name, g.tokens_hash FROM generation g JOIN prompt p "
                    "ON p.id = g.prompt_id WHERE g.run_id = {} ORDER BY 1, 2",
                    run_id));
  };
  const auto led = texts(outcome.run_id);
  EXPECT_EQ(led.size(), 2u);
  EXPECT_EQ(run().measured, 0) << "resumed";
  request_.suite.replay = false;
  const RunOutcome free = run();
  EXPECT_NE(free.run_id, outcome.run_id) << "never mixed";
  EXPECT_EQ(texts(free.run_id), led);
  EXPECT_THAT(
      rows(fmt::format("SELECT count(asked) FROM generation WHERE run_id = {}", free.run_id)),
      ElementsAre("0"));
}

TEST_F(ReplayRun, AWrongAcceptanceIsAFewPlacesAndNoCascade) {
  request_.suite.aa = false;
  complete_suite(request_.suite, "test");
  const RunPlan plan = make_plan(request_);
  request_.faults[plan.arms[1].record.label] = "wrong-accept";
  const RunOutcome led = run();
  EXPECT_EQ(led.failed, 0);
  EXPECT_THAT(rows("SELECT count(DISTINCT tokens_hash) FROM generation GROUP BY prompt_id"),
              ElementsAre("1", "1"));
  EXPECT_THAT(rows("SELECT asked, differing BETWEEN 6 AND 60, near_ties < differing, largest_gap > "
                   "0 FROM v_divergence WHERE fault = 'wrong-accept'"),
              ElementsAre("138 1 1 1"));
  EXPECT_THAT(rows("SELECT sum(differing) FROM v_divergence WHERE fault = ''"), ElementsAre("0"));
  // Plain decoding prefers its own token wherever it is another one, and every gap is known.
  EXPECT_THAT(rows("SELECT min(gap) >= 0, count(*) = count(gap), sum(expected = found) FROM "
                   "divergence"),
              ElementsAre("1 1 0"));
  // Repeats ask the same and find the same.
  EXPECT_THAT(rows("SELECT count(*) FROM (SELECT g.prompt_id, t.idx, d.idx, d.found, d.gap FROM "
                   "divergence d JOIN turn t ON t.id = d.turn_id JOIN generation g ON g.id = "
                   "t.generation_id GROUP BY 1, 2, 3, 4, 5 HAVING count(*) <> 2)"),
              ElementsAre("0"));
}

// What stands before a method does not keep it from being led.
TEST_F(ReplayRun, OtherFaultsAreLedAsWell) {
  for (const char* fault : {"slow:10%", "miscount"}) {
    complete_suite(request_.suite, "test");
    request_.faults = {{make_plan(request_).arms[2].record.label, fault}};
    EXPECT_EQ(run().failed, 0) << fault;
    EXPECT_THAT(
        rows(fmt::format("SELECT asked, differing FROM v_divergence WHERE fault = '{}'", fault)),
        ElementsAre("138 0"));
  }
}

TEST_F(ReplayRun, AResumedRunFollowsTheTextThatIsStored) {
  request_.suite.methods = {"pld"};
  RunnerOptions options;
  // After the first block: prompt a in repeat 0.
  options.stop = [this] { return rows("SELECT id FROM generation").size() >= 3; };
  EXPECT_EQ(run(options).measured, 3);
  // Another text than the model's, so that whoever decodes it anew is found out.
  store_.query("SELECT t.id, t.tokens FROM turn t WHERE t.idx = 1", {}, [&](const results::Row& r) {
    std::string tokens = r.blob(1);
    tokens[4 * 20] = static_cast<char>(tokens[4 * 20] == 'q' ? 'r' : 'q');
    store_.execute("UPDATE turn SET tokens = CAST(? AS BLOB) WHERE id = ?", {tokens, r.integer(0)});
    return true;
  });
  const RunOutcome outcome = run();
  EXPECT_EQ(outcome.measured, 9);
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_THAT(rows("SELECT count(DISTINCT t.tokens) FROM turn t JOIN generation g ON g.id = "
                   "t.generation_id GROUP BY g.prompt_id, t.idx"),
              ElementsAre("1", "1", "1"));
  EXPECT_THAT(rows("SELECT min(d.idx), count(DISTINCT g.arm_id) FROM divergence d JOIN turn t ON "
                   "t.id = d.turn_id JOIN generation g ON g.id = t.generation_id"),
              ElementsAre("20 3"));
}

TEST_F(ReplayRun, ATunedTargetFollowsItsOwnPlainDecoding) {
  const std::string adapter = folder_.file("tuned.safetensors");
  tests::random_adapter("space_tuned", *request_.target, 7).write(adapter);
  request_.suite.methods = {"pld", "space:adapter=" + adapter + ",k=2"};
  request_.suite.aa = false;
  EXPECT_EQ(run().failed, 0);
  EXPECT_THAT(divergences(), ElementsAre("ar baseline 138 0", "pld method 138 0",
                                         "ar_tuned method 138 0", "space method 138 0"));
  EXPECT_THAT(rows("SELECT count(DISTINCT tokens_hash) FROM generation GROUP BY prompt_id"),
              ElementsAre("2", "2"))
      << "two models, two texts";
}

TEST_F(ReplayRun, MethodsWithoutTheCommonVerifierAreRefusedByName) {
  request_.suite.methods = {"pad:n=3"};
  try {
    run();
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("pad:n=3: replay is not possible"));
  }
  request_.suite.methods = {"pld"};
  request_.suite.optional_methods = {"pad:n=3"};
  complete_suite(request_.suite, "test");
  EXPECT_THAT(make_plan(request_).left_out, ElementsAre(HasSubstr("pad:n=3")));
}

}  // namespace
}  // namespace evalrun::runners
