#include "tests/e2e/kill_and_resume.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "engine/base/rng.h"
#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

void remove_database(const std::string& db) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) std::filesystem::remove(db + suffix);
}

// Every generation of `stored` is one of the undisturbed run, with the same tokens and step counts.
void expect_outputs(const StoredRun& stored, const StoredRun& expected) {
  for (const auto& [cell, generation] : stored) {
    const auto same = expected.find(cell);
    ASSERT_NE(same, expected.end()) << cell.arm << " " << cell.prompt;
    ASSERT_TRUE(generation.same_output(same->second)) << cell.arm << " " << cell.prompt;
  }
}

}  // namespace

void kill_and_resume(const KilledSuite& suite) {
  TempFolder undisturbed;
  write_prompts(undisturbed, suite.prompts);
  const auto begin = Clock::now();
  const ProgramResult reference = run_evalrun(undisturbed, suite.arguments);
  const double whole_s = Seconds(Clock::now() - begin).count();
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  // The same again measures nothing: what is left is the way to the first row.
  const auto again = Clock::now();
  ASSERT_EQ(run_evalrun(undisturbed, suite.arguments).exit_code, 0);
  double start_s = Seconds(Clock::now() - again).count();
  const StoredRun expected = read_stored(undisturbed.file("r.db"));
  ASSERT_EQ(expected.size(), suite.cells);

  TempFolder folder;
  write_prompts(folder, suite.prompts);
  const std::string db = folder.file("r.db");
  const int n_kills = suite.kills;
  base::Rng rng(sample_seed());
  StoredRun committed;  // seen in the file at some time
  int mid_run = 0, in_start = 0, completed = 0;
  while (mid_run + in_start < n_kills) {
    Child child(folder, evalrun_command(suite.arguments));
    // From before the file exists to some way into the suite; a suite takes several kills.
    std::this_thread::sleep_for(Seconds(rng.uniform() * (start_s + 0.15 * whole_s)));
    // Half of the time a reader looks while the program writes: what it sees is committed for good.
    // Not while the file is being made: changing to a write-ahead log needs it alone.
    if (rng.below(2) == 0 && !committed.empty()) {
      for (auto& [cell, generation] : read_stored(db)) committed[cell] = generation;
    }
    child.send(SIGKILL);
    const int code = child.wait();
    if (code != 128 + SIGKILL) {
      ASSERT_EQ(code, 0) << folder.read("stderr.txt");
    }
    if (!std::filesystem::exists(db)) {
      ASSERT_TRUE(committed.empty());
      ++in_start;
      continue;
    }
    ASSERT_EQ(check_integrity(db), "ok")
        << "after kill " << mid_run + in_start << ", seed " << sample_seed();
    StoredRun now;
    if (count_stored(db) > 0) now = read_stored(db);
    for (const auto& [cell, generation] : committed) {
      const auto kept = now.find(cell);
      ASSERT_NE(kept, now.end()) << "lost: " << cell.arm << " " << cell.prompt;
      ASSERT_EQ(kept->second, generation) << "changed: " << cell.arm << " " << cell.prompt;
    }
    ASSERT_NO_FATAL_FAILURE(expect_outputs(now, expected));
    if (code == 0) {  // finished before the signal came: start over with an empty file
      ASSERT_EQ(now.size(), suite.cells);
      ++completed;
      remove_database(db);
      committed.clear();
      continue;
    }
    (now.empty() ? in_start : mid_run) += 1;
    // The way to the first row takes longer than it did where other programs run beside this one.
    if (now.empty()) start_s *= 1.25;
    committed = std::move(now);
  }
  const ProgramResult last = run_evalrun(folder, suite.arguments);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  const StoredRun whole = read_stored(db);
  ASSERT_EQ(whole.size(), suite.cells);
  for (const auto& [cell, generation] : committed) ASSERT_EQ(whole.at(cell), generation);
  ASSERT_NO_FATAL_FAILURE(expect_outputs(whole, expected));
  EXPECT_EQ(check_integrity(db), "ok");
  EXPECT_GE(mid_run, n_kills / 2) << "too few kills hit a suite under way to prove anything";
  std::cout << n_kills << " kills: " << mid_run << " of a suite under way, " << in_start
            << " before its first row; " << completed
            << " suites completed in between; an undisturbed "
            << "suite takes " << whole_s << " s\n";
}

}  // namespace evalrun::tests
