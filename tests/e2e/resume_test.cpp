// Interruption and resume: the same tokens and counts as if nothing had happened, nothing twice.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

constexpr int kPrompts = 40, kMaxNew = 48;
constexpr size_t kCells = kPrompts * 3;  // AR, A/A, PLD

TEST(Resume, AfterCtrlC) {
  TempFolder undisturbed;
  write_prompts(undisturbed, kPrompts);
  const ProgramResult reference = run_evalrun(undisturbed, run_arguments(kMaxNew));
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  const StoredRun expected = read_stored(undisturbed.file("r.db"));
  ASSERT_EQ(expected.size(), kCells);

  TempFolder folder;
  write_prompts(folder, kPrompts);
  const std::string db = folder.file("r.db");
  {
    Child child(folder, evalrun_command(run_arguments(kMaxNew)));
    while (count_stored(db) < 4 && child.running())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.send(SIGINT);
    ASSERT_EQ(child.wait(), 130) << folder.read("stderr.txt");
  }
  EXPECT_THAT(folder.read("stderr.txt"), HasSubstr("resume with"));
  const StoredRun half = read_stored(db);
  ASSERT_GE(half.size(), 4u);
  ASSERT_LT(half.size(), kCells) << "the run was over before the interrupt came";
  // Finishing the prompt means that its arms are all there.
  EXPECT_EQ(half.size() % 3, 0u);

  const ProgramResult resumed = run_evalrun(folder, run_arguments(kMaxNew));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const StoredRun whole = read_stored(db);
  ASSERT_EQ(whole.size(), kCells);
  for (const auto& [cell, generation] : half)
    EXPECT_EQ(whole.at(cell), generation) << cell.prompt << ": changed by the resume";
  for (const auto& [cell, generation] : whole)
    EXPECT_TRUE(generation.same_output(expected.at(cell))) << cell.arm << " " << cell.prompt;
  EXPECT_EQ(query_value(db, "SELECT count(*) FROM run"), "1");

  // Once more: nothing left to do, nothing changed.
  const ProgramResult again = run_evalrun(folder, run_arguments(kMaxNew));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("nothing was measured again"));
  EXPECT_EQ(read_stored(db), whole);
  EXPECT_EQ(again.out, resumed.out) << "the table of the same rows";
}

TEST(Resume, OtherSettingsAreAnotherRun) {
  TempFolder folder;
  write_prompts(folder, 2);
  ASSERT_EQ(run_evalrun(folder, run_arguments(8)).exit_code, 0);
  ASSERT_EQ(run_evalrun(folder, run_arguments(9)).exit_code, 0);
  ASSERT_EQ(run_evalrun(folder, run_arguments(8, {"--no-resume"})).exit_code, 0);
  const std::string db = folder.file("r.db");
  EXPECT_EQ(query_value(db, "SELECT count(*) FROM run"), "3");
  EXPECT_EQ(query_value(db, "SELECT count(*) FROM generation"), std::to_string(3 * 2 * 3));
}

}  // namespace
}  // namespace evalrun::tests
