// The machine's state as a check of the gate: which verdicts it may overturn.
#include "runners/cli/gate_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/results/synthetic.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;
using ::testing::HasSubstr;
using tests::SyntheticArm;

class GateEnvironment : public ::testing::Test {
 protected:
  GateEnvironment() : store_(folder_.file("a.db")) {
    run_.arms = tests::usual_arms();
    run_.prompts_per_task = 8;
  }
  // The outcome of a check that had said `code`, with the method at `mhz` and `others` of a second
  // taken by others.
  GateOutcome judged(ExitCode code, double mhz, int64_t others_ns) {
    run_.key += "x";
    run_.change = [=](results::GenerationRecord& g, const SyntheticArm& a, int, int, int) {
      g.clock = results::ClockRecord{
          a.role == "method" ? mhz : 2000.0, 1'000'000'000, 800'000'000, others_ns, 0, 0};
    };
    GateOutcome outcome;
    outcome.code = outcome.result.code = code;
    outcome.run_id = tests::fill(store_, run_);
    judge_environment(store_, outcome);
    return outcome;
  }
  tests::TemporaryFolder folder_;
  results::ResultStore store_;
  tests::SyntheticRun run_;
};

TEST_F(GateEnvironment, ThrottlingOverturnsVerdictsAboutSpeedOnly) {
  for (const ExitCode code : {ExitCode::kRegression, ExitCode::kInconclusive}) {
    const GateOutcome outcome = judged(code, 1900, 0);
    EXPECT_EQ(outcome.code, ExitCode::kEnvironment);
    EXPECT_THAT(outcome.note, HasSubstr("pld:k=4 ran at a clock -5.0 % off ar's"));
    ASSERT_EQ(outcome.result.verdicts.size(), 1u);
    EXPECT_EQ(outcome.result.verdicts[0].metric, "environment");
    EXPECT_EQ(outcome.result.verdicts[0].outcome, reports::Outcome::kInconclusive);
  }
  for (const ExitCode code : {ExitCode::kOk, ExitCode::kCorrectness, ExitCode::kNoBaseline}) {
    const GateOutcome outcome = judged(code, 1900, 0);
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.note, "");
    EXPECT_EQ(outcome.result.verdicts.at(0).outcome, reports::Outcome::kOk);
    EXPECT_THAT(outcome.result.verdicts[0].reason, HasSubstr("NOT QUOTABLE"));
  }
}

TEST_F(GateEnvironment, OtherProcessesAreToldAndOverturnNothing) {
  const GateOutcome outcome = judged(ExitCode::kRegression, 2000, 500'000'000);
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
  EXPECT_THAT(outcome.result.verdicts.at(0).reason, HasSubstr("NOT QUOTABLE, others had more"));
  EXPECT_THAT(judged(ExitCode::kOk, 2000, 0).result.verdicts.at(0).reason,
              HasSubstr(": quotable."));
}

TEST_F(GateEnvironment, TheConfirmingRunCountsAsWell) {
  GateOutcome outcome = judged(ExitCode::kRegression, 2000, 0);
  const int64_t quiet = outcome.run_id;
  const GateOutcome throttled = judged(ExitCode::kOk, 1900, 0);
  outcome.confirming_run = throttled.run_id;
  outcome.result.verdicts.clear();
  judge_environment(store_, outcome);
  EXPECT_EQ(outcome.run_id, quiet);
  EXPECT_EQ(outcome.code, ExitCode::kEnvironment);
  EXPECT_EQ(outcome.result.verdicts.size(), 2u);
}

TEST_F(GateEnvironment, RunsWithoutClocksHaveNoSuchCheck) {
  GateOutcome outcome;
  outcome.code = ExitCode::kRegression;
  outcome.run_id = tests::fill(store_, run_);
  judge_environment(store_, outcome);
  EXPECT_TRUE(outcome.result.verdicts.empty());
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
}

}  // namespace
}  // namespace evalrun::cli
