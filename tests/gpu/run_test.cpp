// tests/gpu/run with programs that stand in for gpu_tests, gpu_report and compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/temp_folder.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuRun : public ::testing::Test {
 protected:
  GpuRun() {
    tests("");
    program("bin/gpu_report",
            "echo \"$@\"\n"
            "[ $4 = 1/1 ] && name=gpu-report || name=gpu-report-2of3\n"
            "printf '# figures\\n**Predicted bits (hopper): as predicted**, 3 of 3 rows.\\n' "
            ">\"$2/$name.md\"\n");
    program("compute-sanitizer", "echo \"$@\" >>'" + folder_.file("sanitized") +
                                     "'\necho '========= ERROR SUMMARY: 0 errors'\n");
  }

  // gpu_tests with three tests; `behind` comes after the first line of each, with its name in $t.
  void tests(const std::string& behind) const {
    program("bin/gpu_tests",
            "echo 'GPU: stand-in, compute capability 9.0'\n"
            "if [ \"$1\" = --gtest_list_tests ]; then\n"
            "  printf 'A.\\n  one\\n  two\\nB/C.\\n  three/0  # GetParam() = 4\\n'\n"
            "  exit 0\n"
            "fi\n"
            "n=0\nIFS=:\n"
            "for t in ${1#--gtest_filter=}; do\n"
            "  echo \"[ RUN      ] $t\"\n" +
                behind +
                "  echo \"ran $t\"\n"
                "  n=$((n + 1))\n"
                "done\n"
                "echo \"[  PASSED  ] $n tests.\"\n");
  }
  void program(const std::string& name, const std::string& commands) const {
    folder_.write_program(name, "#!/bin/sh\n" + commands);
  }
  // Exit code; what was printed is in printed_.
  int run(const std::string& options = "") {
    const std::string command = EVALRUN_SOURCE_DIR "/tests/gpu/run --build '" + folder_.path() +
                                "' --out '" + folder_.file("out") + "' " + options + " 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return -1;
    printed_.clear();
    for (int c; (c = std::fgetc(pipe)) != EOF;) printed_ += static_cast<char>(c);
    const int status = ::pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string text(const std::string& name) const { return folder_.read(name); }
  const TempFolder folder_;
  std::string printed_;
};

TEST_F(GpuRun, GathersOneReport) {
  EXPECT_EQ(run(), 0) << printed_;
  EXPECT_THAT(
      text("out/REPORT.md"),
      AllOf(HasSubstr("part 1/1: pass"), HasSubstr("GPU: stand-in"),
            HasSubstr("| tests | pass | 3 passed |"), HasSubstr("| memcheck | pass | 0 errors |"),
            HasSubstr("| racecheck | pass |"), HasSubstr("# figures")));
  EXPECT_THAT(printed_, HasSubstr("Predicted bits (hopper): as predicted, 3 of 3 rows."));
  const std::string report = text("out/REPORT.md");
  EXPECT_LT(report.find("**Predicted bits"), report.find("# figures"));
  EXPECT_THAT(text("sanitized"),
              AllOf(HasSubstr("--tool memcheck"), HasSubstr("--tool racecheck"),
                    HasSubstr("--gtest_filter=*Products*:*Backend*:DeviceAnswers*")));
}

TEST_F(GpuRun, PartsSplitTestsAndShapes) {
  EXPECT_EQ(run("--part 2/3 --model m.gguf"), 0) << printed_;
  EXPECT_THAT(text("out/tests-2of3.log"), AllOf(HasSubstr("ran A.two"), Not(HasSubstr("one"))));
  EXPECT_THAT(text("out/REPORT-2of3.md"), HasSubstr("| tests | pass | 1 passed |"));
  EXPECT_THAT(text("out/report-2of3.log"),
              AllOf(HasSubstr("--part 2/3"), HasSubstr("--model m.gguf")));
  EXPECT_THAT(text("out/REPORT-2of3.md"), HasSubstr("# figures"));
}

TEST_F(GpuRun, AFailedTestFailsTheWholeAndIsShown) {
  tests(
      "[ $t != A.one ] || { echo 'other bits'; echo '[  FAILED  ] 1 test, listed below:'; exit 1; "
      "}\n");
  EXPECT_EQ(run(), 1) << printed_;
  EXPECT_THAT(text("out/REPORT.md"),
              AllOf(HasSubstr("part 1/1: FAIL"), HasSubstr("| tests | FAIL (exit code 1) |"),
                    HasSubstr("1 failed"), HasSubstr("other bits"), HasSubstr("| report | pass")));
}

// What comes after a test that took the device or the process down is run all the same.
TEST_F(GpuRun, BehindAFaultANewProcessGoesOn) {
  for (const auto& [end, said] :
       {std::pair{"{ echo '[  FAULT   ] A.one: illegal address'; exit 8; }",
                  "A.one: illegal address"},
        std::pair{"kill -SEGV $$", "A.one: exit code 139"}}) {
    tests(std::string("[ $t != A.one ] || ") + end + "\n");
    EXPECT_EQ(run(), 1) << printed_;
    EXPECT_THAT(text("out/REPORT.md"),
                AllOf(HasSubstr("2 passed, 1 stopped by a fault"), HasSubstr(said)));
    EXPECT_THAT(text("out/tests.log"), AllOf(HasSubstr("ran A.two"), HasSubstr("ran B/C.three/0"),
                                             Not(HasSubstr("ran A.one"))));
  }
}

TEST_F(GpuRun, WhatTheSanitizerFindsFailsTheWhole) {
  program("compute-sanitizer", "echo '========= ERROR SUMMARY: 3 errors'\nexit 9\n");
  EXPECT_EQ(run(), 1) << printed_;
  EXPECT_THAT(text("out/REPORT.md"), HasSubstr("| memcheck | FAIL (exit code 9) | 3 errors"));
}

TEST_F(GpuRun, WithoutAGpuNothingIsVerified) {
  program("bin/gpu_tests", "echo 'SKIPPED: no GPU (no CUDA-capable device is detected)'\n");
  EXPECT_EQ(run(), 0) << printed_;
  EXPECT_THAT(printed_, AllOf(HasSubstr("no CUDA-capable device"), HasSubstr("nothing verified")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
}

TEST_F(GpuRun, BadOptionsAndFoldersAreRefused) {
  for (const char* options : {"--part 0/2", "--part 3/2", "--part x", "--part", "--colour"})
    EXPECT_EQ(run(options), 2) << options << ": " << printed_;
  std::filesystem::remove(folder_.file("bin/gpu_report"));
  EXPECT_EQ(run(), 7);
  EXPECT_THAT(printed_, HasSubstr("gpu_report is not there"));
  program("bin/gpu_report", "");
  program("bin/gpu_tests", "echo 'GLIBC_2.99 not found'\nexit 1\n");
  EXPECT_EQ(run(), 6);
  EXPECT_THAT(printed_, AllOf(HasSubstr("GLIBC_2.99"), Not(HasSubstr("nothing verified"))));
}

}  // namespace
}  // namespace evalrun::tests
