// A child that takes turns, played by shell scripts: what it does wrong is named.
#include "runners/cli/gate/turn_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "engine/base/error.h"
#include "runners/measure/interrupt.h"
#include "tests/temp_folder.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;
using ::testing::HasSubstr;

class TurnChildren : public ::testing::Test {
 protected:
  // The script after the word that it was started with.
  std::unique_ptr<TurnChild> start(const std::string& script, double patience_s = 20) {
    return std::make_unique<TurnChild>(
        "other build, session 2", std::vector<std::string>{"/bin/sh", "-c", script, "--lock-step"},
        folder_.file("log"), patience_s);
  }
  template <typename F>
  static base::Error error_of(const F& f) {
    try {
      f();
    } catch (const base::Error& e) {
      return e;
    }
    return base::Error(ExitCode::kOk, "no error", "");
  }
  tests::TempFolder folder_;
};

constexpr const char* kTwoTurns =
    "echo lock-step 2 1 1; read a; echo done; read b; echo done; read c";

TEST_F(TurnChildren, TakeTurns) {
  const auto child = start(std::string(kTwoTurns) + "; echo \"$a, $b, $c\" >&2");
  ASSERT_TRUE(child->ready());
  EXPECT_EQ(child->visits(), 1);
  EXPECT_EQ(child->repeats(), 1);
  EXPECT_TRUE(child->begin(0));
  EXPECT_TRUE(child->begin(7));
  child->finish();
  EXPECT_EQ(folder_.read("log"), "go 0 0, go 0 7, end\n");
}

TEST_F(TurnChildren, StepsWaitToBeTold) {
  const auto child = start(
      "echo lock-step 2 1 1; read w; echo done; read a; echo pause; read b; echo pause; read c; "
      "echo done; read d; echo \"$a, $b, $c\" >&2");
  ASSERT_TRUE(child->ready());
  EXPECT_TRUE(child->begin(0));
  EXPECT_FALSE(child->begin(1));
  EXPECT_FALSE(child->go_on(4, 2));
  EXPECT_TRUE(child->go_on(8, 3));
  child->finish();
  EXPECT_EQ(folder_.read("log"), "go 0 1, go 4 2, go 8 3\n");
}

TEST_F(TurnChildren, TheirProcessorTimeIsKnown) {
  const auto child = start(
      "echo lock-step 2 1 1; read a; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; "
      "echo done; read b");
  ASSERT_TRUE(child->ready());
  const int64_t before = child->processor_ns();
  child->begin(0);
  EXPECT_GT(child->processor_ns(), before);
  child->finish();
  EXPECT_EQ(child->processor_ns(), 0);
}

TEST_F(TurnChildren, FailedGenerationsAreTheGatesBusiness) {
  const auto child = start(std::string(kTwoTurns) + "; exit 5");
  ASSERT_TRUE(child->ready());
  child->begin(0);
  child->begin(0);
  EXPECT_NO_THROW(child->finish());
}

TEST_F(TurnChildren, OldBuildsDoNotKnowTheOption) {
  EXPECT_FALSE(start("echo 'error: not expected: --lock-step' >&2; exit 2")->ready());
  // Nor the way that turns were taken in before.
  EXPECT_FALSE(start("echo lock-step 1 7 1; read a")->ready());
  const base::Error other = error_of([&] { start("echo 'error: no suite' >&2; exit 2")->ready(); });
  EXPECT_EQ(other.code(), ExitCode::kData);
  EXPECT_THAT(other.message(), HasSubstr("ended with exit code 2, other build, session 2, before "
                                         "it was ready: error: no suite"));
}

TEST_F(TurnChildren, WhatIsNotEvalrunIsNamed) {
  EXPECT_THAT(error_of([&] { start("echo Usage: me; exec sleep 60")->ready(); }).message(),
              HasSubstr("no evalrun that can be told when to measure: said 'Usage: me'"));
  EXPECT_THAT(error_of([&] { start("exit 0")->ready(); }).message(),
              HasSubstr("ended without a word"));
  const base::Error missing = error_of([&] {
    TurnChild("x", {folder_.file("none"), "run"}, folder_.file("log"), 1);
  });
  EXPECT_EQ(missing.code(), ExitCode::kUsage);
  EXPECT_THAT(missing.message(), HasSubstr("cannot be started"));
}

TEST_F(TurnChildren, KilledInAVisit) {
  const auto child = start("echo lock-step 2 7 1; read a; echo done; read b; kill -9 $$");
  ASSERT_TRUE(child->ready());
  child->begin(0);
  const base::Error error = error_of([&] { child->begin(0); });
  EXPECT_EQ(error.code(), ExitCode::kData);
  EXPECT_THAT(error.message(), HasSubstr("was killed by signal 9 (Killed), other build, session "
                                         "2, in visit 1 of 7"));
  EXPECT_THAT(error.hint(), HasSubstr("memory"));
}

TEST_F(TurnChildren, DeviceFaultsKeepTheirCode) {
  const auto child = start("echo lock-step 2 7 1; read a; echo 'cuda:0: lost' >&2; exit 8");
  ASSERT_TRUE(child->ready());
  const base::Error error = error_of([&] { child->begin(0); });
  EXPECT_EQ(error.code(), ExitCode::kDevice);
  EXPECT_THAT(error.message(), HasSubstr("cuda:0: lost"));
}

TEST_F(TurnChildren, HangingOnesAreGivenUp) {
  const auto child = start("echo lock-step 2 7 1; read a; exec sleep 600", 0.3);
  ASSERT_TRUE(child->ready());
  EXPECT_THAT(error_of([&] { child->begin(0); }).message(),
              HasSubstr("said nothing for 0 s, other build, session 2, while warming up"));
}

TEST_F(TurnChildren, AWrongAnswerIsNamed) {
  const auto child = start("echo lock-step 2 7 1; read a; echo dune; exec sleep 60");
  ASSERT_TRUE(child->ready());
  EXPECT_THAT(error_of([&] { child->begin(0); }).message(), HasSubstr("answered 'dune'"));
}

TEST_F(TurnChildren, CtrlCEndsTheWait) {
  const runners::InterruptGuard guard;
  const auto child = start("trap '' INT; exec sleep 600");
  ::raise(SIGINT);
  EXPECT_EQ(error_of([&] { child->ready(); }).code(), ExitCode::kInterrupted);
}

}  // namespace
}  // namespace evalrun::cli
