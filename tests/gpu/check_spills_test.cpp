// scripts/check-spills on what cuobjdump prints, from a program that stands in for it.
#include <fmt/format.h>
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

struct Result {
  int exit_code;
  std::string out;
};

class CheckSpills : public ::testing::Test {
 protected:
  CheckSpills() { folder_.write("engine/cuda/libevalrun_cuda.a", ""); }
  Result check(const std::string& cuobjdump) const {
    const std::string command = "CUOBJDUMP='" + cuobjdump +
                                "' " EVALRUN_SOURCE_DIR "/scripts/check-spills '" + folder_.path() +
                                "' 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "popen failed"};
    Result result{};
    for (int c; (c = std::fgetc(pipe)) != EOF;) result.out += static_cast<char>(c);
    const int status = ::pclose(pipe);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
  }
  // As cuobjdump of CUDA 13.2 prints one architecture.
  Result check_output(const std::string& functions) const {
    folder_.write("dump.txt",
                  "Fatbin elf code:\n================\narch = sm_90a\nhost = linux\n\n"
                  "Resource usage:\n Common:\n  GLOBAL:0\n" +
                      functions);
    const std::string program =
        folder_.write_program("cuobjdump", "#!/bin/sh\ncat '" + folder_.file("dump.txt") + "'\n");
    return check(program);
  }
  const TempFolder folder_;
};

constexpr const char* kClean =
    " Function _ZN7evalrun5cleanEPf:\n"
    "  REG:40 STACK:0 SHARED:1536 LOCAL:0 CONSTANT[0]:536 TEXTURE:0 SURFACE:0 SAMPLER:0\n";

TEST_F(CheckSpills, AllIsWell) {
  const Result result = check_output(kClean);
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("none of 1 kernels uses local memory"),
                                HasSubstr("sm_90a"), HasSubstr("40    1536      0      0")));
}

TEST_F(CheckSpills, FindsStackAndLocalMemory) {
  for (const char* spilling : {"STACK:1424 SHARED:0 LOCAL:0", "STACK:0 SHARED:0 LOCAL:8"}) {
    const Result result = check_output(
        fmt::format("{} Function _ZN7evalrun6spillsEPfi:\n  REG:255 {} CONSTANT[0]:540 TEXTURE:0\n",
                    kClean, spilling));
    EXPECT_EQ(result.exit_code, 1) << result.out;
    EXPECT_THAT(result.out, AllOf(HasSubstr("spills"), HasSubstr("1 of 2 kernels")));
  }
}

TEST_F(CheckSpills, SaysWhyItCannotTell) {
  EXPECT_THAT(check("no-such-cuobjdump").out, HasSubstr("skipped: no no-such-cuobjdump"));
  EXPECT_THAT(check_output("").out, HasSubstr("holds no kernel"));
  EXPECT_THAT(check("true").out, HasSubstr("holds no device code"));
  for (const char* skipped : {"no-such-cuobjdump", "true"}) EXPECT_EQ(check(skipped).exit_code, 0);
  std::filesystem::remove_all(folder_.file("engine"));
  const Result none = check("true");
  EXPECT_EQ(none.exit_code, 7);
  EXPECT_THAT(none.out, HasSubstr("is not there"));
}

}  // namespace
}  // namespace evalrun::tests
