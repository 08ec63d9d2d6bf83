// tests/gpu/run with programs that stand in for gpu_tests, gpu_report and compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <tuple>

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
            "echo \"$@\" >>'" + folder_.file("reports") +
                "'\n"
                "while [ $# -gt 1 ]; do\n"
                "  case $1 in --only) only=$2 ;; --out) out=$2 ;; --part) part=$2 ;; esac\n"
                "  shift 2\n"
                "done\n"
                "[ $part = 1/1 ] && name=$only || name=$only-2of3\n"
                "printf \"# figures of $only\\n**Predicted bits (hopper): as predicted**, 3 of 3 "
                "rows.\\n\" >\"$out/gpu-report-$name.md\"\n");
    sanitizer("echo '========= ERROR SUMMARY: 0 errors'\n");
  }

  void sanitizer(const std::string& commands) const {
    program("compute-sanitizer", "echo \"$@\" >>'" + folder_.file("sanitized") + "'\n" + commands);
  }
  // gpu_tests with three tests, and one of parity; `behind` comes after the first line of each,
  // with its name in $t.
  void tests(const std::string& behind) const {
    program("bin/gpu_tests",
            "echo 'GPU: stand-in, compute capability 9.0'\n"
            "if [ \"$1\" = --gtest_list_tests ]; then\n"
            "  case $2 in\n"
            "    --gtest_filter=-*)\n"
            "      printf 'A.\\n  one\\n  two\\nB/C.\\n  three/0  # GetParam() = 4\\n' ;;\n"
            "    *) printf 'F/Backend.\\n  EqualsTheCpu/0\\n' ;;\n"
            "  esac\n"
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
  const std::string report = text("out/REPORT.md");
  EXPECT_THAT(
      report,
      AllOf(HasSubstr("part 1/1: pass"), HasSubstr("GPU: stand-in"),
            HasSubstr("| parity | pass | 1 passed |"), HasSubstr("| tests | pass | 3 passed |"),
            HasSubstr("| ncu | not run: no Nsight Compute |"),
            HasSubstr("| memcheck | pass | 0 errors |"), HasSubstr("| racecheck | pass |")));
  EXPECT_THAT(printed_, HasSubstr("Predicted bits (hopper): as predicted, 3 of 3 rows."));
  EXPECT_THAT(text("sanitized"),
              AllOf(HasSubstr("--tool memcheck"), HasSubstr("--tool racecheck"),
                    HasSubstr("--gtest_filter=*Products*:*Backend*:DeviceAnswers*")));
  // What says most comes first.
  size_t last = 0;
  for (const char* step :
       {"| predicted bits |", "| parity |", "| bits of rows |", "| times |", "| tests |", "| ncu |",
        "| memcheck |", "| racecheck |", "\n**Predicted bits", "# figures of predicted",
        "# figures of bits", "# figures of times"}) {
    const size_t at = report.find(step);
    ASSERT_NE(at, std::string::npos) << step;
    EXPECT_GT(at, last) << step;
    last = at;
  }
}

TEST_F(GpuRun, PartsSplitTestsAndShapes) {
  EXPECT_EQ(run("--part 2/3 --model m.gguf"), 0) << printed_;
  EXPECT_THAT(text("out/tests-2of3.log"), AllOf(HasSubstr("ran A.two"), Not(HasSubstr("one"))));
  EXPECT_THAT(text("out/REPORT-2of3.md"), HasSubstr("| tests | pass | 1 passed |"));
  EXPECT_THAT(text("reports"), AllOf(HasSubstr("--only bits"), HasSubstr("--part 2/3"),
                                     HasSubstr("--model m.gguf")));
  EXPECT_THAT(text("out/REPORT-2of3.md"), HasSubstr("# figures of times"));
}

// What time is short for is stopped or left out, from the end.
TEST_F(GpuRun, ATimeIsKept) {
  program("bin/gpu_report", "exec sleep 8\n");
  EXPECT_EQ(run("--seconds 6"), 1) << printed_;
  const std::string report = text("out/REPORT.md");
  EXPECT_THAT(report, AllOf(HasSubstr("| predicted bits | FAIL (stopped after 6 s) |"),
                            HasSubstr("| parity | not run: the 6 s are spent |"),
                            HasSubstr("| racecheck | not run: the 6 s are spent |")));
}

TEST_F(GpuRun, AFailedTestFailsTheWholeAndIsShown) {
  tests(
      "[ $t != A.one ] || { echo 'other bits'; echo '[  FAILED  ] 1 test, listed below:'; exit 1; "
      "}\n");
  EXPECT_EQ(run(), 1) << printed_;
  EXPECT_THAT(
      text("out/REPORT.md"),
      AllOf(HasSubstr("part 1/1: FAIL"), HasSubstr("| tests | FAIL (exit code 1) |"),
            HasSubstr("1 failed"), HasSubstr("other bits"), HasSubstr("| memcheck | pass")));
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

constexpr const char* kOurs =
    "========= Invalid __global__ write of size 4 bytes\n"
    "=========     at void evalrun::engine::cuda::<unnamed>::norm<(int)4>(float *)+0x90\n"
    "=========     by thread (0,0,0) in block (0,0,0)\n"
    "=========     Host Frame: main in gpu_tests\n"
    "=========\n";
constexpr const char* kOfALibrary =
    "========= Invalid __global__ read of size 2 bytes\n"
    "=========     at cutlass_80_tensorop_gemm(Params)+0x1f30\n"
    "=========     Host Frame: evalrun::engine::cuda::Dense::multiply in gpu_tests\n"
    "=========\n";
constexpr const char* kRace =
    "========= Error: Race reported between Write access at "
    "evalrun::engine::cuda::<unnamed>::wide_product(float *)+0x90\n"
    "=========     and Read access at evalrun::engine::cuda::<unnamed>::wide_product(float *)+0xd0 "
    "[4096 hazards]\n"
    "=========\n";

// Only errors of the engine's kernels are failures.
TEST_F(GpuRun, WhatTheSanitizerFindsFailsTheWhole) {
  const auto says = [&](const std::string& text, int code) {
    sanitizer("cat <<'TEXT'\n" + text + "TEXT\nexit " + std::to_string(code) + "\n");
  };
  says(std::string(kOurs) + kOfALibrary + "========= ERROR SUMMARY: 2 errors\n", 9);
  EXPECT_EQ(run(), 1) << printed_;
  EXPECT_THAT(text("out/REPORT.md"),
              HasSubstr("| memcheck | FAIL (1 errors in the engine's kernels) | 2 errors"));
  says(std::string(kRace) + "========= RACECHECK SUMMARY: 1 hazard displayed (1 error)\n", 9);
  EXPECT_EQ(run(), 1) << printed_;
  EXPECT_THAT(text("out/REPORT.md"),
              HasSubstr("| racecheck | FAIL (1 errors in the engine's kernels) | 1 hazard"));
  says("[  FAILED  ] 1 test, listed below:\n========= ERROR SUMMARY: 0 errors\n", 1);
  EXPECT_EQ(run(), 1) << printed_;
  says("========= ERROR SUMMARY: 0 errors\n", 139);  // it died, and nobody says why
  EXPECT_EQ(run(), 1) << printed_;
}

TEST_F(GpuRun, WhatIsNotTheEnginesFailsNothing) {
  for (const auto& [text_of_it, code, word] :
       {std::tuple{kOfALibrary, 9, "| memcheck | pass (1 reports, none of the engine's kernels) |"},
        std::tuple{"========= Error: Device not supported. See the documentation.\n", 1,
                   "| memcheck | not run: Error: Device not supported. See the documentation. |"},
        std::tuple{"========= Internal Sanitizer Error: The Sanitizer encountered an error\n", 255,
                   "| memcheck | not run: Internal Sanitizer Error: "}}) {
    sanitizer("cat <<'TEXT'\n" + std::string(text_of_it) + "TEXT\nexit " + std::to_string(code) +
              "\n");
    EXPECT_EQ(run(), 0) << printed_;
    EXPECT_THAT(text("out/REPORT.md"), HasSubstr(word));
  }
}

// Launches of one kernel and grid are one line.
TEST_F(GpuRun, WhatNcuSawIsATable) {
  program("nsight-compute/ncu",
          "echo \"$@\" >'" + folder_.file("profiled") +
              "'\n"
              "cat <<'TEXT'\n"
              "==PROF== Connected to process 7\n"
              "\"ID\",\"Kernel Name\",\"Grid Size\",\"sm__throughput.avg.pct_of_peak_sustained_"
              "elapsed\",\"gpu__time_duration.sum\",\"dram__throughput.avg.pct_of_peak_sustained_"
              "elapsed\",\"sm__warps_active.avg.pct_of_peak_sustained_active\"\n"
              "\"\",\"\",\"\",\"%\",\"ns\",\"%\",\"%\"\n"
              "\"0\",\"void evalrun::engine::cuda::<unnamed>::norm<(int)4>(float *, const float "
              "*)\",\"(1, 1, 1)\",\"1.5\",\"3,600\",\"2\",\"10\"\n"
              "\"1\",\"void evalrun::engine::cuda::<unnamed>::narrow_product<(WeightStorage)1, "
              "(int)1>(MatrixRef)\",\"(256, 1, 1)\",\"40\",\"12500\",\"58\",\"25\"\n"
              "\"2\",\"void evalrun::engine::cuda::<unnamed>::norm<(int)4>(float *, const float "
              "*)\",\"(1, 1, 1)\",\"2.5\",\"3,800\",\"4\",\"10\"\n"
              "TEXT\n");
  EXPECT_EQ(run(), 0) << printed_;
  EXPECT_THAT(text("profiled"), HasSubstr("bin/gpu_report --once Llama-2-7B bf16"));
  EXPECT_THAT(
      text("out/REPORT.md"),
      AllOf(HasSubstr("| ncu | pass |"), HasSubstr("| norm | (1 1 1) | 2 | 3.7 | 3 | 2 | 10 |"),
            HasSubstr("| narrow_product | (256 1 1) | 1 | 12.5 | 58 | 40 | 25 |")));
  program("nsight-compute/ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'\nexit 1\n");
  EXPECT_EQ(run(), 0) << printed_;
  EXPECT_THAT(text("out/REPORT.md"),
              HasSubstr("| ncu | not run: ==ERROR== ERR_NVGPUCTRPERM - no permission |"));
}

TEST_F(GpuRun, WithoutAGpuNothingIsVerified) {
  program("bin/gpu_tests", "echo 'SKIPPED: no GPU (no CUDA-capable device is detected)'\n");
  EXPECT_EQ(run(), 0) << printed_;
  EXPECT_THAT(printed_, AllOf(HasSubstr("no CUDA-capable device"), HasSubstr("nothing verified")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
}

TEST_F(GpuRun, BadOptionsAndFoldersAreRefused) {
  for (const char* options :
       {"--part 0/2", "--part 3/2", "--part x", "--part", "--colour", "--seconds 0", "--seconds x"})
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
