// `run --devices` and `run --mpi`: the run of several processes is that of one.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/base/text.h"
#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kPrompts = 24, kMaxNew = 32;
constexpr size_t kCells = kPrompts * 3;

class SharedRun : public ::testing::Test {
 protected:
  void SetUp() override { write_prompts(folder_, kPrompts); }

  // The same tokens and steps as by one process, in one run, and no parts left over.
  void expect_as_by_one(const std::string& db) {
    const ProgramResult one = run_evalrun(alone_, arguments_of_one());
    ASSERT_EQ(one.exit_code, 0) << one.err;
    const StoredRun expected = read_stored(alone_.file("r.db"));
    const StoredRun shared = read_stored(folder_.file(db));
    ASSERT_EQ(shared.size(), kCells);
    ASSERT_EQ(expected.size(), kCells);
    for (const auto& [cell, generation] : expected)
      EXPECT_TRUE(shared.at(cell).same_output(generation)) << cell.arm << " " << cell.prompt;
    EXPECT_EQ(query_value(folder_.file(db), "SELECT count(*) FROM run"), "1");
    EXPECT_EQ(check_integrity(folder_.file(db)), "ok");
    EXPECT_FALSE(fs::exists(folder_.file(db + ".parts")));
  }
  std::vector<std::string> arguments_of_one() {
    write_prompts(alone_, kPrompts);
    return run_arguments(kMaxNew);
  }
  // Generations in all parts.
  int in_parts() const {
    int n = 0;
    std::error_code error;
    for (fs::recursive_directory_iterator i(folder_.file("r.db.parts"), error), end;
         !error && i != end; i.increment(error))
      if (i->path().extension() == ".db") n += count_stored(i->path().string());
    return n;
  }
  TempFolder folder_, alone_;
};

std::string two_devices() { return ::sysconf(_SC_NPROCESSORS_ONLN) > 1 ? "cpu,cpu" : "cpu"; }

TEST_F(SharedRun, OnTwoDevices) {
  const ProgramResult result =
      run_evalrun(folder_, run_arguments(kMaxNew, {"--devices", two_devices()}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("pld"));
  expect_as_by_one("r.db");
  // The command that is stored is the one that was given.
  const std::string command = query_value(folder_.file("r.db"), "SELECT command FROM run");
  EXPECT_THAT(command, HasSubstr("--devices"));
  EXPECT_THAT(command, ::testing::Not(HasSubstr("--peers")));

  const ProgramResult again =
      run_evalrun(folder_, run_arguments(kMaxNew, {"--devices", two_devices()}));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(query_value(folder_.file("r.db"), "SELECT count(*) FROM run"), "1");
  EXPECT_EQ(again.out, result.out) << "the table of the same rows";
}

// Killed as a whole, then measured by another number of processes: nothing twice, nothing missing.
TEST_F(SharedRun, GoesOnWithAnotherNumberOfProcesses) {
  if (two_devices() == "cpu") GTEST_SKIP() << "one processor";
  {
    Child child(folder_, evalrun_command(run_arguments(kMaxNew, {"--devices", "cpu,cpu"})));
    while (in_parts() < 7 && child.running())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.send(SIGTERM);
    EXPECT_EQ(child.wait(), 130) << folder_.read("stderr.txt");
  }
  EXPECT_THAT(folder_.read("stderr.txt"), HasSubstr("with any number of processes"));
  EXPECT_FALSE(fs::exists(folder_.file("r.db"))) << "only what is complete gets there";
  const int before = in_parts();
  ASSERT_GE(before, 7);
  ASSERT_LT(before, static_cast<int>(kCells));
  const ProgramResult result = run_evalrun(folder_, run_arguments(kMaxNew, {"--devices", "cpu"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_as_by_one("r.db");
}

TEST_F(SharedRun, ADeadProcessIsMadeUpFor) {
  if (two_devices() == "cpu") GTEST_SKIP() << "one processor";
  Child child(folder_, evalrun_command(run_arguments(kMaxNew, {"--devices", "cpu,cpu"})));
  while (in_parts() < 4 && child.running())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // The second process, by its words.
  pid_t victim = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code ignored;
    if (fs::read_symlink(entry.path() / "cwd", ignored) != fs::path(folder_.path())) continue;
    std::ifstream in(entry.path() / "cmdline");
    const std::string words((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (words.find("1/2:") != std::string::npos) victim = std::atoi(name.c_str());
  }
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(child.wait(), 0) << folder_.read("stderr.txt");
  EXPECT_THAT(folder_.read("stderr.txt"), HasSubstr("process 2 has ended early"));
  expect_as_by_one("r.db");
}

TEST_F(SharedRun, Refusals) {
  const auto refused = [&](std::vector<std::string> more, const std::string& named) {
    const ProgramResult result = run_evalrun(folder_, run_arguments(4, std::move(more)));
    EXPECT_EQ(result.exit_code, 2) << named << result.err;
    EXPECT_THAT(result.err, HasSubstr(named));
    EXPECT_FALSE(fs::exists(folder_.file("r.db"))) << named;
  };
  refused({"--devices", "cpu,cuda:0"}, "of two kinds");
  refused({"--devices", "cpu", "--device", "cpu"}, "--devices with --device");
  refused({"--devices", "cpu", "--shard", "1/2"}, "--devices with --shard");
  refused({"--devices", "cpu", "--copy-to", "x.db"}, "--devices with --copy-to");
  refused({"--devices", "cpu", "--mpi"}, "--mpi with --devices");
  refused({"--mpi", "--no-resume"}, "--mpi with --no-resume");
}

// A second process that cannot begin ends the first one, which would have measured everything.
TEST_F(SharedRun, NobodyBeginsWhereOneCannot) {
  const ProgramResult result =
      run_evalrun(folder_, run_arguments(4, {"--devices", "cuda:98,cuda:99"}));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("cuda"));
  EXPECT_FALSE(fs::exists(folder_.file("r.db")));
}

bool mpi_is_there() {
  return fs::exists(fs::path(EVALRUN_PROGRAM).parent_path() / "evalrun-mpi.so");
}

TEST_F(SharedRun, WithoutMpiTheBuildSaysSo) {
  // Where no library lies beside it.
  fs::create_directory(folder_.file("bin"));
  fs::copy_file(EVALRUN_PROGRAM, folder_.file("bin/evalrun"));
  std::vector<std::string> words = run_arguments(4, {"--mpi"});
  words.insert(words.begin(), folder_.file("bin/evalrun"));
  const ProgramResult result = run_command_in(folder_, words);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("this build of evalrun has no MPI"));
  EXPECT_THAT(result.err, HasSubstr("evalrun merge"));
}

std::vector<std::string> mpirun(const std::string& n, std::vector<std::string> arguments) {
  arguments = evalrun_command(std::move(arguments));
  const std::vector<std::string> front = {
      "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", n};
  arguments.insert(arguments.begin(), front.begin(), front.end());
  return arguments;
}

TEST_F(SharedRun, ByMpi) {
  if (!mpi_is_there()) GTEST_SKIP() << "no MPI in this build (libopenmpi-dev openmpi-bin)";
  const ProgramResult result =
      run_command_in(folder_, mpirun("3", run_arguments(kMaxNew, {"--mpi"})));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("pld"));
  expect_as_by_one("r.db");
}

TEST_F(SharedRun, ByMpiAfterARankHasDied) {
  if (!mpi_is_there()) GTEST_SKIP() << "no MPI in this build (libopenmpi-dev openmpi-bin)";
  {
    Child child(folder_, mpirun("2", run_arguments(kMaxNew, {"--mpi"})));
    while (in_parts() < 5 && child.running())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pid_t victim = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::error_code ignored;
      if (fs::read_symlink(entry.path() / "exe", ignored) == fs::canonical(EVALRUN_PROGRAM) &&
          fs::read_symlink(entry.path() / "cwd", ignored) == fs::path(folder_.path()))
        victim = std::max(victim, std::atoi(entry.path().filename().c_str()));
    }
    ASSERT_NE(victim, 0);
    ::kill(victim, SIGKILL);
    EXPECT_NE(child.wait(), 0);
  }
  const int before = in_parts();
  ASSERT_GE(before, 5);
  ASSERT_LT(before, static_cast<int>(kCells));
  const ProgramResult result =
      run_command_in(folder_, mpirun("3", run_arguments(kMaxNew, {"--mpi"})));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_as_by_one("r.db");
}

}  // namespace
}  // namespace evalrun::tests
