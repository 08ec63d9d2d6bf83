// Red verdicts against a baseline of one session, where the result file knows more sessions of its
// build, and where it does not.
#include "runners/cli/gate/gate_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "runners/cli/gate/gate_run.h"
#include "tests/results/synthetic.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;
using ::testing::HasSubstr;
using tests::SyntheticArm;

class GateHistory : public ::testing::Test {
 protected:
  GateHistory() : store_(std::make_shared<results::ResultStore>(folder_.file("a.db"))) {
    run_.arms = tests::usual_arms();
    run_.prompts_per_task = 8;
  }
  // A run of a build. Its method, or plain decoding, takes so many times as long as usual.
  int64_t session(const std::string& commit, double method, double plain = 1) {
    run_.key += "x";
    run_.commit = commit;
    run_.change = [=](results::GenerationRecord& g, const SyntheticArm& a, int, int, int) {
      const double factor = a.role == "method" ? method : plain;
      g.turns[0].decode_ns = std::llround(factor * static_cast<double>(g.turns[0].decode_ns));
    };
    return tests::fill(*store_, run_);
  }
  GateOutcome judged(int64_t baseline, int64_t run, std::vector<int64_t> more_sessions = {}) {
    const GateOutcome outcome =
        judge_stored({store_, baseline, std::move(more_sessions)}, {store_, run}, {});
    EXPECT_EQ(outcome.result.code, ExitCode::kRegression) << outcome.result.summary;
    return outcome;
  }
  tests::TempFolder folder_;
  std::shared_ptr<results::ResultStore> store_;
  tests::SyntheticRun run_;
};

// Nothing is known of the machine: a loss stays red, whatever its size, and is told to be alone.
TEST_F(GateHistory, OneSessionAloneIsToldToBe) {
  const int64_t baseline = session("old", 1);
  session("other", 1.1);
  const GateOutcome outcome = judged(baseline, session("new", 1.06));
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
  EXPECT_THAT(outcome.note, HasSubstr("the baseline has one session, which stands alone"));
  // The line that is printed says what to do, step by step.
  const std::string line = gate_line(outcome);
  EXPECT_THAT(line, HasSubstr("store five of them (evalrun run SUITE --no-resume && evalrun "
                              "baseline save NAME --add)"));
  EXPECT_THAT(line, HasSubstr("or use --against"));
  // A run of the same build is no session of its own history.
  EXPECT_THAT(judged(baseline, session("old", 1.06)).note, HasSubstr("one session"));
}

// ln 1.06 is 2.8 % beyond the margin of 3 %. Sessions with a standard deviation of 2 % differ from
// each other by that or more with a chance of a fifth.
TEST_F(GateHistory, SessionsThatDifferByAsMuchExplainIt) {
  const int64_t baseline = session("old", 1);
  session("old", 1.02), session("old", 0.98);
  for (const auto& [method, plain] : {std::pair(1.06, 1.0), std::pair(1.0, 1.06)}) {
    const GateOutcome outcome = judged(baseline, session("new", method, plain));
    EXPECT_EQ(outcome.code, ExitCode::kInconclusive);
    EXPECT_THAT(outcome.note, HasSubstr("pld:k=4: 3 stored sessions of the baseline's build have a "
                                        "standard deviation of 2.0 %, which may be all of it"));
    EXPECT_THAT(outcome.note, HasSubstr("--against"));
    EXPECT_THAT(gate_line(outcome), HasSubstr("check: inconclusive - pld:k=4"));
  }
  // Three times as slow is more than that.
  EXPECT_EQ(judged(baseline, session("new", 3)).code, ExitCode::kRegression);
}

// What has local changes may be another build by now.
TEST_F(GateHistory, BuildsWithoutANameHaveNone) {
  const int64_t baseline = session("old-dirty", 1);
  session("old-dirty", 1.02), session("old-dirty", 0.98);
  const GateOutcome outcome = judged(baseline, session("old-dirty", 1.06));
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
  EXPECT_THAT(outcome.note, HasSubstr("the baseline has one session"));
}

TEST_F(GateHistory, SessionsThatHardlyDifferDoNot) {
  const int64_t baseline = session("old", 1);
  const std::vector<int64_t> more = {session("old", 1.001), session("old", 0.999)};
  const int64_t slower = session("new", 1.06);
  const GateOutcome outcome = judged(baseline, slower);
  EXPECT_EQ(outcome.code, ExitCode::kRegression);
  EXPECT_THAT(outcome.note, HasSubstr("0.1 %, which does not explain it"));
  // A baseline of several sessions has their spread in its verdict.
  EXPECT_EQ(judged(baseline, slower, more).note, "");
}

}  // namespace
}  // namespace evalrun::cli
