#include "runners/cluster/database_copy.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "runners/cluster/shard_reporter.h"
#include "tests/results/synthetic.h"

namespace evalrun::runners {
namespace {

using results::ResultStore;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A run of so many prompts, three arms each.
void store_run(const std::string& file, int prompts, const std::string& key = "run") {
  ResultStore store(file);
  tests::SyntheticRun run;
  run.key = key;
  run.prompts_per_task = prompts;
  run.arms = tests::usual_arms();
  tests::fill(store, run);
}

int64_t generations_of(const std::string& file) {
  int64_t n = 0;
  ResultStore(file, ResultStore::Mode::kReadOnly)
      .query("SELECT count(*) FROM generation", {}, [&](const results::Row& row) {
        n = row.integer(0);
        return false;
      });
  return n;
}

TEST(CopyDatabase, WhileItIsOpenForWriting) {
  const tests::TempFolder temp;
  store_run(temp.file("local.db"), 4);
  const ResultStore writer(temp.file("local.db"));
  copy_database(temp.file("local.db"), temp.file("copy.db"));
  EXPECT_EQ(generations_of(temp.file("copy.db")), 12);
  // One file is all of it, and nothing else is left behind.
  EXPECT_FALSE(fs::exists(temp.file("copy.db-wal")));
  for (const auto& entry : fs::directory_iterator(temp.path()))
    EXPECT_EQ(entry.path().string().find(".part."), std::string::npos) << entry.path();
  // Again over the old one.
  copy_database(temp.file("local.db"), temp.file("copy.db"));
  EXPECT_EQ(generations_of(temp.file("copy.db")), 12);
}

TEST(CopyDatabase, SaysWhereItCannotWrite) {
  const tests::TempFolder temp;
  store_run(temp.file("local.db"), 1);
  try {
    copy_database(temp.file("local.db"), temp.file("no/such/folder/copy.db"));
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.message(), HasSubstr("no/such/folder/copy.db"));
    EXPECT_THAT(e.hint(), HasSubstr("local.db"));
  }
}

TEST(RestoreDatabase, TakesTheCopyThatHoldsMore) {
  const tests::TempFolder temp;
  const std::string copy = temp.file("copy.db"), local = temp.file("local.db");
  EXPECT_EQ(restore_database(copy, local), Restored::kNothing) << "there is no copy";
  store_run(copy, 4);
  EXPECT_EQ(restore_database(copy, local), Restored::kCopied) << "there is no file";
  EXPECT_EQ(generations_of(local), 12);
  EXPECT_EQ(restore_database(copy, local), Restored::kNothing) << "as much";
  fs::remove(local);
  store_run(local, 6);
  EXPECT_EQ(restore_database(copy, local), Restored::kNothing) << "the file holds more";
  EXPECT_EQ(generations_of(local), 18);
  fs::remove(local);
  store_run(local, 2);
  EXPECT_EQ(restore_database(copy, local), Restored::kCopied);
  EXPECT_EQ(generations_of(local), 12);
}

// Neither may take the other's place, whichever holds more.
TEST(RestoreDatabase, RefusesTheFileOfOtherRuns) {
  const tests::TempFolder temp;
  const std::string copy = temp.file("copy.db"), local = temp.file("local.db");
  store_run(copy, 4, "theirs");
  for (const int prompts : {2, 6}) {
    fs::remove(local);
    store_run(local, prompts, "ours");
    EXPECT_THROW(restore_database(copy, local), base::Error) << prompts;
    EXPECT_EQ(generations_of(local), 3 * prompts);
    EXPECT_EQ(generations_of(copy), 12);
  }
}

TEST(RestoreDatabase, RefusesWhatIsNoDatabase) {
  const tests::TempFolder temp;
  temp.write("copy.db", std::string(4096, 'x'));
  EXPECT_THROW(restore_database(temp.file("copy.db"), temp.file("local.db")), base::Error);
  EXPECT_FALSE(fs::exists(temp.file("local.db")));
}

class FakeClock final : public base::Clock {
 public:
  int64_t now_ns() override { return now_; }
  void pass(double s) { now_ += static_cast<int64_t>(1e9 * s); }

 private:
  int64_t now_ = 1'000'000'000;
};

class Reporter : public ::testing::Test {
 protected:
  ShardReporter::Settings settings() {
    return {.database = temp_.file("local.db"),
            .copy = temp_.file("copy.db"),
            .shard = "2/3",
            .copy_every_s = 100,
            .stop = [this] { return told_; }};
  }
  bool copied() const { return fs::exists(temp_.file("copy.db")); }
  ShardStatus status() const { return read_status(temp_.file("copy.status.json")).value(); }
  tests::TempFolder temp_;
  FakeClock clock_;
  ProgressSink silent_;
  bool told_ = false;
};

TEST_F(Reporter, CopiesNowAndThen) {
  ShardReporter reporter(silent_, clock_, settings());
  store_run(temp_.file("local.db"), 4);
  EXPECT_EQ(status().state, "preparing");
  reporter.begin(12, 3);
  EXPECT_EQ(status().planned, 15);
  EXPECT_EQ(status().stored, 3);
  clock_.pass(60);
  reporter.generation_done("ar", "p0", false);
  EXPECT_FALSE(copied());
  EXPECT_EQ(status().measured, 1);
  clock_.pass(5);
  reporter.generation_done("ar", "p1", true);
  EXPECT_EQ(status().measured, 1) << "only every ten seconds";
  clock_.pass(40);
  reporter.generation_done("pld", "p1", false);
  EXPECT_TRUE(copied());
  EXPECT_EQ(status().measured, 3);
  EXPECT_EQ(status().failed, 1);
  EXPECT_DOUBLE_EQ(status().seconds, 105);
  RunOutcome outcome;
  outcome.planned = 15;
  outcome.stored_before = 3;
  outcome.measured = 12;
  reporter.ended(outcome);
  reporter.finish("complete");
  EXPECT_TRUE(status().complete());
  EXPECT_EQ(status().stored, 15);
  EXPECT_EQ(status().shard, "2/3");
}

TEST_F(Reporter, CopiesAtOnceWhenToldToEnd) {
  ShardReporter reporter(silent_, clock_, settings());
  store_run(temp_.file("local.db"), 4);
  reporter.begin(12, 0);
  told_ = true;
  reporter.generation_done("ar", "p0", false);
  EXPECT_TRUE(copied());
  reporter.finish("stopped");
  EXPECT_EQ(status().state, "stopped");
}

TEST_F(Reporter, AnErrorLeavesACopyAndAStatus) {
  store_run(temp_.file("local.db"), 4);
  { ShardReporter reporter(silent_, clock_, settings()); }
  EXPECT_TRUE(copied());
  EXPECT_EQ(status().state, "failed");
}

// A full shared disk must not end the measurement, and must not go unsaid at its end.
TEST_F(Reporter, GoesOnWhereNothingCanBeCopied) {
  ShardReporter::Settings broken = settings();
  fs::create_directory(temp_.file("shared"));
  broken.copy = temp_.file("shared/copy.db");
  ShardReporter reporter(silent_, clock_, broken);
  fs::remove_all(temp_.file("shared"));
  store_run(temp_.file("local.db"), 1);
  reporter.begin(3, 0);
  clock_.pass(200);
  reporter.generation_done("ar", "p0", false);
  EXPECT_THROW(reporter.finish("complete"), base::Error);
}

TEST_F(Reporter, BeginsNothingWhereNothingCanBeWritten) {
  ShardReporter::Settings broken = settings();
  broken.copy = temp_.file("no/such/folder/copy.db");
  EXPECT_THROW(ShardReporter(silent_, clock_, broken), base::Error);
}

}  // namespace
}  // namespace evalrun::runners
