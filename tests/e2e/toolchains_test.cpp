// What `doctor` says of a compiler or a library that is not there, on a machine where it is hidden.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "tests/e2e/program.h"

namespace evalrun::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCrates = "/usr/share/cargo/registry";

// The line of `doctor` that begins with a level and `name`.
std::string line_of(const std::string& out, const std::string& name) {
  for (const std::string& line : base::split(out, '\n'))
    if (line.size() > 6 && line.compare(6, name.size() + 1, name + " ") == 0) return line;
  return "no line of " + name + " in:\n" + out;
}

TEST(Toolchains, WhatIsMissingIsNamed) {
  const TempFolder folder;
  const std::string javac = fs::exists("/usr/bin/javac") ? fs::canonical("/usr/bin/javac") : "";
  if (javac.empty() || !fs::exists(kCrates)) GTEST_SKIP() << "no Java or no crates of Rust";
  const std::vector<std::string> hide = {"bwrap",   "--dev-bind", "/",          "/",
                                         "--tmpfs", kCrates,      "--ro-bind",  "/dev/null",
                                         javac,     "--chdir",    folder.path()};
  const auto run = [&](std::vector<std::string> command) {
    command.insert(command.begin(), hide.begin(), hide.end());
    return run_command_in(folder, command);
  };
  const ProgramResult probe = run({"true"});
  if (probe.exit_code != 0) GTEST_SKIP() << "bubblewrap does not run here: " << probe.err;

  ::setenv("COLUMNS", "0", 1);  // a finding is one line
  const std::string whole = run_evalrun(folder, {"doctor"}).out;
  EXPECT_THAT(line_of(whole, "Java"), Not(HasSubstr("apt-get")));
  EXPECT_THAT(line_of(whole, "Rust"), Not(HasSubstr("apt-get")));
  const std::string hidden = run(evalrun_command({"doctor"})).out;
  ::unsetenv("COLUMNS");
  EXPECT_THAT(line_of(hidden, "Java"), HasSubstr("apt-get install default-jdk-headless"));
  EXPECT_THAT(line_of(hidden, "Rust"),
              HasSubstr("apt-get install librust-regex-dev librust-regex+perf-dev "
                        "librust-memchr-dev librust-md5-dev librust-rand-dev"));
}

}  // namespace
}  // namespace evalrun::tests
