// `evalrun run --copy-to`: a database on a local disk, and its copy elsewhere.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

TEST(CopyTo, GoesOnFromTheCopyAfterAKill) {
  TempFolder folder;
  write_prompts(folder, 30);
  const std::string local = folder.file("r.db"), copy = folder.file("copy.db");
  const std::vector<std::string> arguments =
      run_arguments(32, {"--copy-to", "copy.db", "--copy-every", "0"});
  {
    Child child(folder, evalrun_command(arguments));
    while (count_stored(copy) < 4 && child.running())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.send(SIGKILL);
    ASSERT_EQ(child.wait(), 128 + SIGKILL) << folder.read("stderr.txt");
  }
  const StoredRun half = read_stored(copy);
  ASSERT_GE(half.size(), 4u);
  EXPECT_EQ(check_integrity(copy), "ok");
  EXPECT_THAT(folder.read("copy.status.json"), HasSubstr("\"measuring\""));

  // Another machine: nothing local is left.
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(local + end);
  const ProgramResult again = run_evalrun(folder, arguments);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("goes on from its copy copy.db"));
  const StoredRun whole = read_stored(copy);
  EXPECT_EQ(whole.size(), 90u);
  for (const auto& [cell, generation] : half)
    EXPECT_EQ(whole.at(cell), generation) << cell.prompt << ": measured twice";
  EXPECT_EQ(whole, read_stored(local));
  EXPECT_THAT(folder.read("copy.status.json"), HasSubstr("\"complete\""));
}

TEST(CopyTo, TheDatabaseItself) {
  TempFolder folder;
  write_prompts(folder, 1);
  const ProgramResult result = run_evalrun(folder, run_arguments(4, {"--copy-to", "./r.db"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("is the result database itself"));
}

TEST(CopyTo, AFolderThatIsNotThere) {
  TempFolder folder;
  write_prompts(folder, 2);
  const ProgramResult result = run_evalrun(folder, run_arguments(4, {"--copy-to", "no/copy.db"}));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("no/copy.db: no copy can be kept"));
  EXPECT_EQ(count_stored(folder.file("r.db")), 0) << "said before hours of measuring";
}

}  // namespace
}  // namespace evalrun::tests
