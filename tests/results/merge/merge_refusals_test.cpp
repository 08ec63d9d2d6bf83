// What cannot be merged, by name; and a merge that ends in the middle: the target is as it was.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "results/merge/merge_runs.h"
#include "results/queries.h"
#include "tests/results/merge/parts.h"
#include "tests/temp_folder.h"

namespace evalrun::results {
namespace {

using ::testing::HasSubstr;
using tests::TempFolder;

class MergeRefusals : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 1; i <= 2; ++i)
      write_part(part(i), {.machine = fmt::format("host-{}", i), .shard = {i, 2}});
  }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string part(int i) const { return file(fmt::format("part-{}.db", i)); }
  MergeOutcome merge(const std::vector<std::string>& names, const std::string& out = "out.db") {
    std::vector<MergeInput> inputs;
    for (const std::string& name : names) inputs.push_back({name});
    return merge_runs(file(out), inputs);
  }
  // The second part is of another plan, told by `sql`.
  base::Error with_another(const std::string& sql) {
    std::filesystem::remove(part(2));
    write_part(part(2), {.machine = "host-2", .shard = {2, 2}});
    {
      ResultStore store(part(2));
      store.execute("UPDATE plan SET key = 'another'");
      store.execute(sql);
    }
    base::Error e = error_of([&] { merge({part(1), part(2)}); });
    EXPECT_EQ(e.code(), base::ExitCode::kNoBaseline) << e.what();
    EXPECT_THAT(e.what(), HasSubstr("part-1.db"));
    EXPECT_THAT(e.what(), HasSubstr("part-2.db"));
    EXPECT_NE(e.hint(), "");
    EXPECT_FALSE(exists("out.db"));
    return e;
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(file(name)); }
  void expect_clean() const {
    for (const char* name : {"out.db.merging", "out.db.merging-wal", "out.db.merge-lock"})
      EXPECT_FALSE(exists(name)) << name;
  }
  TempFolder folder_;
};

TEST_F(MergeRefusals, WhatDiffersIsNamed) {
  EXPECT_THAT(with_another("UPDATE run SET commit_id = 'feed'").what(),
              HasSubstr("builds are 0.1.0 (0123456789ab) and 0.1.0 (feed)"));
  EXPECT_THAT(with_another("INSERT INTO environment VALUES (1, 'compiler', 'clang 14')").what(),
              HasSubstr("compiler is unknown and clang 14"));
  EXPECT_THAT(with_another("INSERT INTO environment VALUES (1, 'model_hash', 'beef')").what(),
              HasSubstr("models differ"));
  EXPECT_THAT(with_another("UPDATE run SET suite_json = '{\"repeats\": 3}'").what(),
              HasSubstr("\"repeats\" of the suite is not there and 3"));
  EXPECT_THAT(with_another("UPDATE run SET label = 'mine'").what(),
              HasSubstr("'whole' and 'mine'"));
  EXPECT_THAT(with_another("UPDATE arm SET settings = '{\"adapter\": \"1\"}'").what(),
              HasSubstr("arm 'ar"));
  EXPECT_THAT(with_another("UPDATE prompt SET key = 'p' WHERE id = 4").what(),
              HasSubstr("prompt 'gsm8k gsm8k/3"));
  EXPECT_THAT(with_another("UPDATE run SET key = 'k'").what(), HasSubstr("nonce"));
}

TEST_F(MergeRefusals, FilesThatAreNoParts) {
  const auto refused = [&](const std::string& name, const std::string& why) {
    const base::Error e = error_of([&] { merge({part(1), file(name)}); });
    EXPECT_EQ(e.code(), base::ExitCode::kData) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(name));
    EXPECT_THAT(e.what(), HasSubstr(why));
    EXPECT_FALSE(exists("out.db"));
    expect_clean();
  };
  refused("none.db", "no such result database");
  std::ofstream(file("text.db")) << std::string(5000, 'x');
  refused("text.db", "not an SQLite database");
  { const ResultStore store(file("empty.db")); }
  refused("empty.db", "holds no run");
  {
    ResultStore store(file("older.db"));
    tests::fill(store, usual());
  }
  refused("older.db", "has no plan");
  {
    ResultStore store(file("version.db"));
    tests::fill(store, usual());
    tests::to_version_12(store);
  }
  refused("version.db", "is 12, not 13");
  // Half of it was copied.
  std::filesystem::copy_file(part(2), file("half.db"));
  std::filesystem::resize_file(file("half.db"), std::filesystem::file_size(part(2)) / 2);
  refused("half.db", "is damaged");
}

TEST_F(MergeRefusals, AFileOfSeveralPlansWantsARun) {
  {
    ResultStore store(part(2));
    tests::SyntheticRun other = usual();
    other.key = "other";
    store.add_plan(tests::fill(store, other), {"other", 3, 4, 1, 1});
  }
  const base::Error e = error_of([&] { merge({part(1), part(2)}); });
  EXPECT_EQ(e.code(), base::ExitCode::kUsage);
  EXPECT_THAT(e.what(), HasSubstr("several plans"));
  const MergeOutcome outcome = merge_runs(file("out.db"), {{part(1)}, {part(2), 1}});
  EXPECT_TRUE(outcome.complete());
  const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM run"), 1);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
  std::filesystem::remove(file("whole.db"));
  write_part(file("a.db"), {.machine = "host-1", .shard = {1, 2}});
  write_part(file("b.db"), {.machine = "host-2", .shard = {2, 2}});
  merge({file("a.db"), file("b.db")}, "whole.db");
  EXPECT_EQ(whole_content(file("out.db")), whole_content(file("whole.db")));
}

TEST_F(MergeRefusals, ATargetThatHoldsAnythingElse) {
  {
    ResultStore store(file("out.db"));
    tests::fill(store, usual());
    tests::SyntheticRun other = usual();
    other.key = "other";
    tests::fill(store, other);
  }
  base::Error e = error_of([&] { merge({part(1)}); });
  EXPECT_EQ(e.code(), base::ExitCode::kUsage);
  EXPECT_THAT(e.what(), HasSubstr("out.db: exists, and holds 2 runs"));
  {
    ResultStore store(file("out.db"));
    store.execute("DELETE FROM run WHERE id = 2");
    store.save_baseline("main", 1, "");
  }
  e = error_of([&] { merge({part(1)}); });
  EXPECT_THAT(e.what(), HasSubstr("the baseline 'main'"));
  expect_clean();
}

TEST_F(MergeRefusals, OneMergeAtATimeAndNoneIntoAFileInUse) {
  const int lock = ::open(file("out.db.merge-lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  base::Error e = error_of([&] { merge({part(1), part(2)}); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("another merge"));
  EXPECT_TRUE(exists("out.db.merge-lock")) << "it is the other's";
  ::close(lock);
  merge({part(1)});  // a lock whose process is gone is none
  expect_clean();
  {
    const ResultStore busy(file("out.db"));
    e = error_of([&] { merge({part(2)}); });
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("out.db: locked by"));
    expect_clean();
  }
  EXPECT_TRUE(merge({part(2)}).complete());
}

// A limit on the size of files stands for the disk.
TEST_F(MergeRefusals, AFullDiskLeavesTheTargetAsItWas) {
  merge({part(1)});
  const std::string before = whole_content(file("out.db"));
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = std::filesystem::file_size(file("out.db"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const base::Error e = error_of([&] { merge({part(2)}); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(e.code(), base::ExitCode::kData) << e.what();
  EXPECT_THAT(e.what(), HasSubstr("out.db.merging"));
  EXPECT_EQ(whole_content(file("out.db")), before);
  expect_clean();
  EXPECT_TRUE(merge({part(2)}).complete());
}

TEST_F(MergeRefusals, AKilledMergeIsRepeated) {
  merge({part(1)});
  const std::string before = whole_content(file("out.db"));
  merge({part(1), part(2)}, "whole.db");
  const std::string whole = whole_content(file("whole.db"));
  int killed = 0;
  for (int us = 0; us < 60'000; us += 3'000) {
    std::filesystem::remove(file("out.db"));
    merge({part(1)});
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        merge_runs(file("out.db"), {{part(2)}});
      } catch (...) {
      }
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(us));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    killed += WIFSIGNALED(status);
    const std::string now = whole_content(file("out.db"));
    EXPECT_TRUE(now == before || now == whole) << us;
    EXPECT_TRUE(merge({part(2)}).complete());
    EXPECT_EQ(whole_content(file("out.db")), whole) << us;
    expect_clean();
  }
  EXPECT_GT(killed, 0);
}

// A log whose database was deleted belongs to no file that is made later.
TEST_F(MergeRefusals, ALogOfADeletedTargetIsNotPlayedIntoTheNewOne) {
  {
    ResultStore old(file("out.db"));
    tests::fill(old, usual());
    std::filesystem::copy_file(file("out.db-wal"), file("log"));
  }
  std::filesystem::remove(file("out.db"));
  std::filesystem::rename(file("log"), file("out.db-wal"));
  merge({part(1), part(2)});
  merge({part(1), part(2)}, "other.db");
  EXPECT_EQ(whole_content(file("out.db")), whole_content(file("other.db")));
  const ResultStore store(file("out.db"));
  EXPECT_EQ(check_file(store), "ok");
}

// An input that a shard still writes to is taken as it is at one moment.
TEST_F(MergeRefusals, AnInputInUseIsReadAndLeftAsItIs) {
  ResultStore busy(part(2));
  busy.execute("UPDATE generation SET total_ns = total_ns + 1 WHERE id = 4");  // in its log
  EXPECT_TRUE(merge({part(1), part(2)}).complete());
  busy.execute("UPDATE generation SET total_ns = total_ns - 1 WHERE id = 4");
  EXPECT_EQ(check_file(busy), "ok");
}

}  // namespace
}  // namespace evalrun::results
