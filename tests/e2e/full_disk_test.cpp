// No space for one more row: a clear message, exit code 7, what was stored stays, and the same
// command goes on once there is space.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "engine/base/error.h"
#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Such a run writes about 4 MB through its write-ahead log; the limits below fall into the middle.
constexpr int kPrompts = 40, kMaxNew = 48;
constexpr size_t kCells = kPrompts * 3;

StoredRun run_undisturbed() {
  TempFolder folder;
  write_prompts(folder, kPrompts);
  const ProgramResult result = run_evalrun(folder, run_arguments(kMaxNew));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return read_stored(folder.file("r.db"));
}

// The file of `folder` holds a part of the run and the same command completes it.
void expect_part_then_whole(const TempFolder& folder, const StoredRun& expected) {
  const std::string db = folder.file("r.db");
  ASSERT_EQ(check_integrity(db), "ok");
  const StoredRun part = read_stored(db);
  EXPECT_GT(part.size(), 0u) << "the limit came before the first row: it proves nothing";
  ASSERT_LT(part.size(), kCells) << "the limit never came";
  const ProgramResult resumed = run_evalrun(folder, run_arguments(kMaxNew));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const StoredRun whole = read_stored(db);
  ASSERT_EQ(whole.size(), kCells);
  for (const auto& [cell, generation] : part) EXPECT_EQ(whole.at(cell), generation);
  for (const auto& [cell, generation] : whole)
    EXPECT_TRUE(generation.same_output(expected.at(cell))) << cell.arm << " " << cell.prompt;
}

std::string quoted_run() {
  std::string line;
  for (const std::string& word : evalrun_command(run_arguments(kMaxNew))) line += " '" + word + "'";
  return line;
}

// A limit on file sizes needs no rights. The signal is ignored, so that the write fails instead.
TEST(FullDisk, FileSizeLimit) {
  const StoredRun expected = run_undisturbed();
  TempFolder folder;
  write_prompts(folder, kPrompts);
  const ProgramResult limited = run_command_in(
      folder, {"bash", "-c", "trap '' XFSZ; ulimit -f 1500; exec" + quoted_run()});  // 1,500 KiB
  EXPECT_EQ(limited.exit_code, 7) << limited.err;
  EXPECT_THAT(limited.err, HasSubstr("r.db: "));
  EXPECT_THAT(limited.err, HasSubstr("hint:"));
  expect_part_then_whole(folder, expected);
}

// A file system that is really full: a small one in memory, in a mount namespace of its own.
TEST(FullDisk, NoSpaceLeft) {
  TempFolder folder;
  write_prompts(folder, kPrompts);
  std::filesystem::create_directory(folder.file("small"));
  const std::string unshare =
      ::geteuid() == 0 ? "unshare --mount" : "unshare --map-root-user --mount";
  const ProgramResult allowed =
      run_command_in(folder, {"bash", "-c", unshare + " mount -t tmpfs -o size=1500k none small"});
  if (allowed.exit_code != 0) GTEST_SKIP() << "mounting a small file system is not allowed here";
  const StoredRun expected = run_undisturbed();
  // The database is copied out of the namespace before the memory goes.
  const ProgramResult full = run_command_in(
      folder,
      {"bash", "-c",
       unshare +
           " bash -c \"mount -t tmpfs -o size=1500k none small && cp prompts.jsonl small && "
           "cd small && { " +
           quoted_run() + "; code=\\$?; cp r.db* ..; exit \\$code; }\""});
  EXPECT_EQ(full.exit_code, 7) << full.err;
  EXPECT_THAT(full.err, HasSubstr("no space left"));
  EXPECT_THAT(full.err, HasSubstr("hint:"));
  EXPECT_THAT(full.err, Not(HasSubstr("internal error")));
  expect_part_then_whole(folder, expected);
}

}  // namespace
}  // namespace evalrun::tests
