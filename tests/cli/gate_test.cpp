// evalrun check: every exit code by planting its cause.
#include <sqlite3.h>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

// Times of a tiny model on a busy machine vary by tens of percent; where speed is not what a test
// is about, only a collapse would matter.
constexpr const char* kWideMargin = "80%";

class Gate : public CommandTest {
 protected:
  void SetUp() override {
    write_prompts(folder_, 6);
    folder_.write("suite.json",
                  R"({"name": "tiny", "methods": ["ar", "pld"], "tasks": ["jsonl:prompts.jsonl"],
                      "max_new": 32, "repeats": 2, "warmup": 1, "ignore_eos": true})");
  }
  void save_baseline() {
    const ProgramResult result =
        run({"run", "suite.json", "-m", tiny_model(), "--db", "r.db", "-t", "1"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  }
  ProgramResult check(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"check", "--db", "r.db"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  ProgramResult self_test(const std::string& fault) {
    return check({"--self-test", fault, "-m", tiny_model(), "-t", "1", "--suite", "suite.json"});
  }
};

TEST_F(Gate, MissingBaseline) {
  const ProgramResult result = check({"--verdict", "v.json"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("no baseline 'main'"));
  EXPECT_EQ(json::parse(folder_.read("v.json"))["exit_code"], 3);
  EXPECT_EQ(check({"--allow-missing-baseline"}).exit_code, 0);
  EXPECT_EQ(check({"--fail-on", "regression,correctness"}).exit_code, 0);
  expect_refused(check({"--fail-on", "regresion"}), 2, "regression");
  expect_refused(check({"--max-regression", "lots"}), 2, "--max-regression");
}

TEST_F(Gate, StoredAndMeasured) {
  save_baseline();
  const ProgramResult stored = check({"run:1", "--json"});
  EXPECT_EQ(stored.exit_code, 0) << stored.err << stored.out;
  EXPECT_EQ(json::parse(stored.out)["class"], "ok");
  // Measured now with the baseline's own suite, model and settings, into a run of its own.
  const ProgramResult measured = check({"--max-regression", kWideMargin, "--verdict", "v.json"});
  EXPECT_EQ(measured.exit_code, 0) << measured.err << measured.out;
  EXPECT_EQ(std::count(measured.out.begin(), measured.out.end(), '\n'), 1) << measured.out;
  const json verdict = json::parse(folder_.read("v.json"));
  EXPECT_EQ(verdict["exit_code"], 0);
  EXPECT_GE(verdict["run"], 2);
  EXPECT_GE(count_stored(folder_.file("r.db")), 2 * 36);
  // Another model cannot be compared with the baseline.
  const ProgramResult other =
      check({"-m", EVALRUN_TEST_DATA "/models/tiny-draft", "--max-extra-runs", "0"});
  EXPECT_EQ(other.exit_code, 3) << other.err << other.out;
}

TEST_F(Gate, PlantedFaultsTurnItRed) {
  // Without a stored baseline one is measured first, undisturbed.
  const ProgramResult wrong = self_test("wrong-accept");
  EXPECT_EQ(wrong.exit_code, 5) << wrong.err << wrong.out;
  save_baseline();
  const int before = count_stored(folder_.file("r.db"));
  const ProgramResult miscount = self_test("miscount");
  EXPECT_EQ(miscount.exit_code, 5) << miscount.err << miscount.out;
  // Three times as slow: far outside of what other processes do to interleaved arms.
  const ProgramResult slow = self_test("slow:200%");
  EXPECT_EQ(slow.exit_code, 1) << slow.err << slow.out;
  EXPECT_THAT(slow.out, HasSubstr("regression"));
  EXPECT_EQ(count_stored(folder_.file("r.db")), before) << "planted rows stay out of the database";
  expect_refused(self_test("slow"), 2, "slow:10%");
  expect_refused(self_test("wrong-acept"), 2, "wrong-accept");
  expect_refused(check({"run:1", "--self-test"}), 2, "RUN");
}

}  // namespace
}  // namespace evalrun::tests
