// The machine's state as a check of the gate: which verdicts it may overturn.
#include "runners/cli/gate/gate_environment.h"

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
  // The outcome of a check that had said `code`, with the method at `mhz`, and of each second
  // `others_ns` taken by other processes, `steal_ns` by other guests.
  GateOutcome judged(ExitCode code, double mhz, int64_t others_ns, int64_t steal_ns = 0,
                     int64_t available_ns = 1'000'000'000) {
    run_.key += "x";
    run_.change = [=](results::GenerationRecord& g, const SyntheticArm& a, int, int, int) {
      g.clock = results::ClockRecord{
          a.role == "method" ? mhz : 2000.0, available_ns, 0, others_ns, steal_ns, 0};
    };
    GateOutcome outcome;
    outcome.code = outcome.result.code = code;
    outcome.run_id = tests::fill(store_, run_);
    judge_environment({{store_, outcome.run_id, "this run"}}, outcome);
    return outcome;
  }
  tests::TempFolder folder_;
  results::ResultStore store_;
  tests::SyntheticRun run_;
};

TEST_F(GateEnvironment, ThrottlingOverturnsVerdictsAboutSpeedOnly) {
  for (const ExitCode code : {ExitCode::kRegression, ExitCode::kInconclusive}) {
    const GateOutcome outcome = judged(code, 1900, 0);
    EXPECT_EQ(outcome.code, ExitCode::kEnvironment);
    EXPECT_THAT(outcome.note, HasSubstr("pld:k=4 ran at a clock -5.0 % off ar's"));
    ASSERT_EQ(outcome.result.checks.size(), 1u);
    EXPECT_EQ(outcome.result.checks[0].metric, "environment");
    EXPECT_EQ(outcome.result.checks[0].outcome, reports::Outcome::kInconclusive);
  }
  for (const ExitCode code : {ExitCode::kOk, ExitCode::kCorrectness, ExitCode::kNoBaseline}) {
    const GateOutcome outcome = judged(code, 1900, 0);
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.note, "");
    EXPECT_EQ(outcome.result.checks.at(0).outcome, reports::Outcome::kOk);
    EXPECT_THAT(outcome.result.checks[0].reason, HasSubstr("NOT QUOTABLE"));
  }
}

TEST_F(GateEnvironment, OtherProcessesAreToldAndOverturnNothing) {
  const GateOutcome outcome = judged(ExitCode::kRegression, 2000, 500'000'000);
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
  EXPECT_THAT(outcome.result.checks.at(0).reason, HasSubstr("NOT QUOTABLE, others had more"));
  EXPECT_THAT(judged(ExitCode::kOk, 2000, 0).result.checks.at(0).reason, HasSubstr(": quotable."));
}

TEST_F(GateEnvironment, OtherGuestsOverturnVerdictsAboutSpeedAboveAFifth) {
  const GateOutcome most = judged(ExitCode::kRegression, 2000, 0, 200'000'000);
  EXPECT_EQ(most.code, ExitCode::kRegression);
  EXPECT_DOUBLE_EQ(most.steal_share, 0.2);
  const GateOutcome more = judged(ExitCode::kRegression, 2000, 0, 210'000'000);
  EXPECT_EQ(more.code, ExitCode::kEnvironment);
  EXPECT_THAT(more.note, HasSubstr("took 21 % of its processor time"));
  EXPECT_EQ(judged(ExitCode::kOk, 2000, 0, 210'000'000).code, ExitCode::kOk);
}

// A quarter of a run of some milliseconds is a tick or two of the kernel's clock.
TEST_F(GateEnvironment, FewTicksOfOtherGuestsSayNothing) {
  const GateOutcome outcome = judged(ExitCode::kRegression, 2000, 0, 100'000, 400'000);
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
  EXPECT_DOUBLE_EQ(outcome.steal_share, 0.25);
}

TEST_F(GateEnvironment, OneUnfitRunOfSeveralIsEnough) {
  GateOutcome outcome = judged(ExitCode::kRegression, 2000, 0);
  const int64_t quiet = outcome.run_id;
  const int64_t throttled = judged(ExitCode::kOk, 1900, 0, 100'000'000).run_id;
  for (const auto& order : {std::pair(quiet, throttled), std::pair(throttled, quiet)}) {
    outcome.code = ExitCode::kRegression;
    outcome.result.checks.clear();
    judge_environment({{store_, order.first, "one"}, {store_, order.second, "two"}}, outcome);
    EXPECT_EQ(outcome.code, ExitCode::kEnvironment);
    EXPECT_DOUBLE_EQ(outcome.steal_share, 0.1) << "the worst";
    ASSERT_EQ(outcome.result.checks.size(), 2u);
    EXPECT_THAT(outcome.result.checks[0].reason, HasSubstr("one: Machine"));
    EXPECT_THAT(outcome.result.checks[1].reason, HasSubstr("two: Machine"));
  }
}

TEST_F(GateEnvironment, InLockStepHalfOfTheSessionsMayBeUnfit) {
  GateOutcome outcome = judged(ExitCode::kRegression, 2000, 0);
  const int64_t quiet = outcome.run_id;
  const int64_t throttled = judged(ExitCode::kOk, 1900, 0).run_id;
  const auto code = [&](const std::vector<int64_t>& runs) {
    std::vector<MeasuredRun> measured;
    for (const int64_t run : runs) measured.push_back({store_, run, "a session"});
    outcome.code = ExitCode::kRegression;
    judge_environment(measured, outcome, measured.size() / 2 + 1);
    return outcome.code;
  };
  EXPECT_EQ(code({quiet, throttled}), ExitCode::kRegression);
  EXPECT_EQ(code({quiet, throttled, throttled}), ExitCode::kEnvironment);
}

TEST_F(GateEnvironment, RunsWithoutClocksHaveNoSuchCheck) {
  GateOutcome outcome;
  outcome.code = ExitCode::kRegression;
  outcome.run_id = tests::fill(store_, run_);
  judge_environment({{store_, outcome.run_id, "this run"}}, outcome);
  EXPECT_TRUE(outcome.result.checks.empty());
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
}

}  // namespace
}  // namespace evalrun::cli
