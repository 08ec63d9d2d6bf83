// From the gate's outcome to the cases a CI system sees, where no machine can be made to produce
// the outcome at will.
#include "runners/cli/gate/gate_ci.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;
using reports::CiCase;
using reports::CiReport;
using reports::CiState;
using reports::Outcome;
using ::testing::HasSubstr;

const std::vector<std::string> kFailing = {"regression", "no-baseline", "correctness",
                                           "environment"};

// A run whose pld looked slower, with equal tokens.
GateOutcome slower() {
  GateOutcome outcome;
  outcome.run_id = 7, outcome.baseline_run = 3;
  outcome.baseline = "main";
  reports::GateCheck speed, tokens;
  speed.metric = "speed", speed.method = "pld", speed.reason = "speedup -10 %";
  speed.outcome = Outcome::kRegression;
  tokens.metric = "tokens", tokens.method = "pld", tokens.reason = "same tokens";
  outcome.result.checks = {speed, tokens};
  outcome.result.summary = "check: regression - pld";
  outcome.result.current.environment["model_path"] = "/models/some/tiny.gguf";
  outcome.code = outcome.result.code = ExitCode::kRegression;
  return outcome;
}

std::string told(const CiCase& c) {
  const char* state[] = {"passed", "failed", "warned"};
  return fmt::format("{} {} {}", c.name, state[static_cast<int>(c.state)], c.type);
}

TEST(GateCi, OneCaseForEachVerdict) {
  const CiReport report = ci_report(slower(), kFailing);
  ASSERT_EQ(report.cases.size(), 2u);
  EXPECT_EQ(told(report.cases[0]), "speed pld failed regression");
  EXPECT_EQ(told(report.cases[1]), "tokens pld passed ");
  EXPECT_EQ(report.summary, "check: regression - pld");
  const std::pair<std::string, std::string> model = {"model", "tiny.gguf"};
  EXPECT_THAT(report.properties, ::testing::Contains(model));
  EXPECT_EQ(told(ci_report(slower(), {"correctness"}).cases[0]), "speed pld warned regression");
}

TEST(GateCi, WhatTheGateDecidedBeyondAVerdictCounts) {
  GateOutcome unfit = slower();
  unfit.code = ExitCode::kEnvironment;
  unfit.note = "other guests took 30 %";
  CiReport report = ci_report(unfit, kFailing);
  EXPECT_EQ(told(report.cases[0]), "speed pld failed environment");
  EXPECT_EQ(report.cases[0].text, "other guests took 30 %\nspeedup -10 %");
  EXPECT_EQ(told(report.cases[1]), "tokens pld passed ");
  GateOutcome unconfirmed = slower();
  unconfirmed.code = ExitCode::kInconclusive;
  unconfirmed.note = "a second run did not confirm it";
  report = ci_report(unconfirmed, kFailing);
  EXPECT_EQ(told(report.cases[0]), "speed pld warned inconclusive");
  EXPECT_THAT(report.cases[0].text, HasSubstr("did not confirm"));
}

TEST(GateCi, NothingToJudge) {
  EXPECT_EQ(told(ci_report(missing_baseline("main", "r.db"), kFailing).cases.at(0)),
            "baseline failed no-baseline");
  GateOutcome other = slower();
  other.result.checks[0].metric = "comparable";
  other.result.checks[0].outcome = Outcome::kIncompatible;
  other.code = other.result.code = ExitCode::kNoBaseline;
  EXPECT_EQ(told(ci_report(other, kFailing).cases[0]), "comparable pld failed no-baseline");
}

TEST(GateCi, ErrorsFailWhateverTheirClass) {
  const auto of = [](const std::exception& e) { return ci_report(e, "main").cases.at(0); };
  EXPECT_EQ(told(of(base::Error(ExitCode::kEnvironment, "out of memory"))),
            "measurement failed environment");
  EXPECT_EQ(told(of(base::data_error("m.gguf", "", "is cut off"))), "measurement failed error");
  EXPECT_EQ(told(of(std::runtime_error("bug"))), "measurement failed error");
  EXPECT_EQ(of(base::data_error("m.gguf", "", "is cut off", "fetch it")).text,
            "m.gguf: is cut off\n  hint: fetch it");
}

}  // namespace
}  // namespace evalrun::cli
