// The precedence of statuses, by hand-made endings.
#include <gtest/gtest.h>
#include <signal.h>

#include "evaluators/programs/program_outcome.h"

namespace evalrun::tests {
namespace {

using evaluators::BoxResult;
using evaluators::judge;
using evaluators::Language;
using End = BoxResult::End;

BoxResult ended(End end, const std::string& control = "", const std::string& err = "") {
  BoxResult r;
  r.end = end;
  r.control = control;
  r.err = err;
  return r;
}
std::string status(const Language& l, const BoxResult& run, const BoxResult* compile = nullptr) {
  const evaluators::ProgramOutcome v = judge(l, compile, &run, "n0nce");
  return v.detail.empty() ? v.status : v.status + ": " + v.detail;
}

TEST(ProgramOutcome, OnlyTheExactNoncePasses) {
  const Language plain;
  EXPECT_EQ(status(plain, ended(End::kExited, "n0nce")), "passed");
  EXPECT_EQ(status(plain, ended(End::kExited)), "failed: early_exit");
  EXPECT_EQ(status(plain, ended(End::kExited, "n0nce\n")), "failed: tampering");
  EXPECT_EQ(status(plain, ended(End::kExited, "xn0nce")), "failed: tampering");
  BoxResult bad = ended(End::kExited, "n0nce");
  bad.exit_code = 1;
  EXPECT_EQ(status(plain, bad), "failed: exit code 1");
}

TEST(ProgramOutcome, Precedence) {
  const Language plain;
  BoxResult broken = ended(End::kBroken, "n0nce");
  broken.problem = "no namespaces";
  EXPECT_EQ(status(plain, broken), "sandbox_error: no namespaces");
  EXPECT_EQ(status(plain, ended(End::kTimeout, "n0nce", "MemoryError")), "timeout: wall clock");
  EXPECT_EQ(status(plain, ended(End::kMemory)), "memory: all processes together");
  EXPECT_EQ(status(plain, ended(End::kOutput)), "output_limit: standard output or error");
  EXPECT_EQ(status(plain, ended(End::kControlFlood)), "output_limit: control channel");
  BoxResult signalled = ended(End::kSignalled);
  signalled.signal = SIGXCPU;
  EXPECT_EQ(status(plain, signalled), "timeout: processor time");
  signalled.signal = SIGXFSZ;
  EXPECT_EQ(status(plain, signalled), "output_limit: file size");
  signalled.signal = SIGSEGV;
  EXPECT_EQ(status(plain, signalled), "failed: signal 11");
  signalled.signal = SIGABRT;
  signalled.err = "terminate called after throwing an instance of 'std::bad_alloc'";
  EXPECT_EQ(status(plain, signalled), "memory: signal 6");
  signalled.err = "a.out: Assertion `add(2,3)==5' failed.";
  EXPECT_EQ(status(plain, signalled), "failed: assertion");
}

TEST(ProgramOutcome, CompilersComeFirst) {
  const Language plain;
  const BoxResult run = ended(End::kExited, "n0nce");
  BoxResult compile = ended(End::kExited);
  EXPECT_EQ(status(plain, run, &compile), "passed");
  compile.exit_code = 1;
  EXPECT_EQ(status(plain, run, &compile), "compile_error: exit code 1");
  compile.end = End::kTimeout;
  EXPECT_EQ(status(plain, run, &compile), "compile_error: timeout");
  Language own;
  own.compiles_itself = true;
  EXPECT_EQ(status(own, ended(End::kExited, "Cn0nce")), "passed");
  EXPECT_EQ(status(own, ended(End::kExited, "n0nce")), "compile_error: exit code 0");
  EXPECT_EQ(status(own, ended(End::kTimeout)), "compile_error: timeout");
  EXPECT_EQ(status(own, ended(End::kTimeout, "C")), "timeout: wall clock");
}

TEST(ProgramOutcome, OfLanguages) {
  Language silent;
  silent.must_be_silent = true;
  EXPECT_EQ(status(silent, ended(End::kExited, "n0nce")), "passed");
  EXPECT_EQ(status(silent, ended(End::kExited, "n0nce", "x")), "failed: printed");
  EXPECT_EQ(status(silent, ended(End::kExited, "N")), "no_tests: no assertion was reached");
  EXPECT_EQ(status(silent, ended(End::kExited, "", "Assertion failed")), "failed: assertion");
  EXPECT_EQ(status(silent, ended(End::kExited)), "failed: early_exit");
  EXPECT_EQ(status(Language(), ended(End::kExited, "", "Assertion failed")), "failed: early_exit")
      << "any program may print that";
  Language counting;
  counting.counts_tests = true;
  BoxResult run = ended(End::kExited, "n0nce");
  run.out = "test result: ok. 1 passed; 0 failed";
  EXPECT_EQ(status(counting, run), "no_tests: the test is empty");
  run.out = "test result: ok. 2 passed; 0 failed";
  EXPECT_EQ(status(counting, run), "passed");
}

TEST(Suspicion, IsAboutMeansNotEnds) {
  for (const char* code :
       {"sys.exit(0)", "os._exit(0)", "sys._getframe(1)", "open('/proc/self/mem')",
        "def __eq__(self, o):", "process.exit(0)", "unsafe { }", "import gc"})
    EXPECT_TRUE(evaluators::looks_suspicious(code)) << code;
  for (const char* code :
       {"return a + b", "exits = 3", "for (int i = 0; i < n; ++i)", "std::sort(a)"})
    EXPECT_FALSE(evaluators::looks_suspicious(code)) << code;
}

}  // namespace
}  // namespace evalrun::tests
