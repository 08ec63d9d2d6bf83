// Every way a result file can be unfit: foreign, newer, older, truncated, locked, read-only, on a
// full disk, or left behind by a killed process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "results/generation_queries.h"
#include "results/queries.h"
#include "results/regroup.h"
#include "results/store.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::SyntheticRun;
using tests::TempFolder;

// ---- unfit files ----

TEST(UnfitFile, NotADatabase) {
  TempFolder folder;
  const std::string path = folder.file("notes.txt");
  const std::string content = "These are notes, not results. " + std::string(5000, 'x');
  std::ofstream(path) << content;
  const base::Error e = error_of([&] { ResultStore store(path); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr(path));
  EXPECT_THAT(e.what(), HasSubstr("is not an SQLite database"));
  EXPECT_EQ(base::read_file(path), content);  // left as it is
}

TEST(UnfitFile, SomeoneElsesDatabase) {
  TempFolder folder;
  const std::string path = folder.file("photos.db");
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "CREATE TABLE photo (id)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const std::string before = base::sha256_file(path);
  const base::Error e = error_of([&] { ResultStore store(path); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("not one of evalrun"));
  EXPECT_EQ(base::sha256_file(path), before);
}

TEST(UnfitFile, NewerSchemaNamesBothVersions) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    tests::fill(store, usual());
    store.execute(fmt::format("UPDATE meta SET value = '{}' WHERE name = 'schema_version'",
                              kSchemaVersion + 1));
  }
  for (const auto mode : {ResultStore::Mode::kReadWrite, ResultStore::Mode::kReadOnly}) {
    const base::Error e = error_of([&] { ResultStore store(path, mode); });
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("version {}", kSchemaVersion + 1)));
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("up to {}", kSchemaVersion)));
    EXPECT_FALSE(e.hint().empty());
  }
}

TEST(UnfitFile, TruncatedDatabase) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    SyntheticRun run = usual();
    run.prompts_per_task = 20;
    tests::fill(store, run);
  }
  std::filesystem::resize_file(path, 3 * 4096);
  const base::Error e = error_of([&] {
    const ResultStore store(path, ResultStore::Mode::kReadOnly);
    integer(store, "SELECT count(*) FROM v_sample");
  });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("damaged"));
}

TEST(UnfitFile, MissingFolderAndReadOnlyOfNothing) {
  TempFolder folder;
  const base::Error e = error_of([&] { ResultStore store(folder.file("no/such/a.db")); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("no/such/a.db"));
  const base::Error f =
      error_of([&] { ResultStore store(folder.file("b.db"), ResultStore::Mode::kReadOnly); });
  EXPECT_EQ(f.code(), base::ExitCode::kData);
  EXPECT_FALSE(std::filesystem::exists(folder.file("b.db")));
}

TEST(UnfitFile, LockedByAnotherProcessIsNamed) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    tests::fill(store, usual());
  }
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    sqlite3* db = nullptr;
    sqlite3_open(path.c_str(), &db);
    sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const base::Error e = error_of([&] {
    ResultStore store(path);
    store.add_run(run_record("another"));
  });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("locked by"));
  // Containers may hide other processes' locks; where they are shown, the process is named.
  const bool shown =
      base::read_file("/proc/locks").find(fmt::format(" {} ", child)) != std::string::npos;
  if (shown) {
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("process {}", child)));
  }
  // Readers are not kept out.
  const ResultStore reader(path, ResultStore::Mode::kReadOnly);
  EXPECT_EQ(integer(reader, "SELECT count(*) FROM run"), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]), close(ready[1]);
}

TEST(UnfitFile, FullDiskLosesNothingStored) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  const SyntheticRun run = usual();
  int64_t stored = 0;
  {
    ResultStore store(path);
    tests::fill(store, run);
    stored = integer(store, "SELECT count(*) FROM generation");
    store.execute(
        fmt::format("PRAGMA max_page_count = {}", integer(store, "PRAGMA page_count") + 20));
    const base::Error e = error_of([&] {
      for (int repeat = 1; repeat < 100'000; ++repeat, ++stored)
        store.add_generation(1, 3, 1, tests::generation(run, run.arms[2], 0, repeat, 0), {});
    });
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("no space left"));
    EXPECT_THAT(e.hint(), HasSubstr("free some space"));
    // Once there is room the very same cell can be stored.
    store.execute("PRAGMA max_page_count = 100000");
    EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), stored);
    const int repeat = static_cast<int>(integer(store, "SELECT max(repeat) + 1 FROM generation"));
    EXPECT_FALSE(store.has_generation(3, 1, repeat, 0));
    store.add_generation(1, 3, 1, tests::generation(run, run.arms[2], 0, repeat, 0), {});
  }
  const ResultStore store(path);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), stored + 1);
  EXPECT_EQ(text(store, "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
}

TEST(UnfitFile, ReadOnlyFile) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  { ResultStore store(path); }
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  // Root may write everything: be nobody for a moment.
  const bool root = geteuid() == 0;
  if (root && seteuid(65534) != 0) GTEST_SKIP() << "root, and no other user id to be had here";
  const base::Error e = error_of([&] { ResultStore store(path); });
  // Reading is possible although no log can be made beside the file.
  EXPECT_EQ(integer(ResultStore(path, ResultStore::Mode::kReadOnly), "SELECT count(*) FROM run"),
            0);
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  chmod(folder.path().c_str(), 0755);
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("cannot be written"));
}

TEST(UnfitFile, WritingThroughAReadOnlyStoreIsRefused) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  { ResultStore store(path); }
  ResultStore store(path, ResultStore::Mode::kReadOnly);
  const base::Error e = error_of([&] { store.add_run(run_record("k")); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("cannot be written"));
}

TEST(UnfitFile, BadSqlIsTheUsersError) {
  TempFolder folder;
  const ResultStore store(folder.file("a.db"));
  const base::Error e =
      error_of([&] { store.query("SELECT * FROM nothing", {}, [](const Row&) { return true; }); });
  EXPECT_EQ(e.code(), base::ExitCode::kUsage);
  EXPECT_THAT(e.what(), HasSubstr("nothing"));
}

// ---- migration ----

TEST(Migration, FromVersionZeroWithACopy) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  std::string schema;
  int64_t n_scores = 0;
  const std::string all_schema =
      "SELECT group_concat(name || sql, ';') FROM (SELECT name, sql FROM "
      "sqlite_schema WHERE type IN ('view', 'index', 'trigger') ORDER BY name)";
  {
    ResultStore store(path);
    tests::fill(store, usual());
    schema = text(store, all_schema);
    n_scores = integer(store, "SELECT count(*) FROM score");
    ASSERT_GT(n_scores, 0);
    // Back to the layout of version 0.
    tests::to_version_2(store);
    store.execute("ALTER TABLE generation DROP COLUMN fault");
    store.execute("ALTER TABLE score RENAME TO new_score");
    store.execute(
        "CREATE TABLE score (generation_id INTEGER NOT NULL, evaluator TEXT NOT NULL, version TEXT "
        "NOT NULL, value REAL, extracted TEXT NOT NULL, status TEXT NOT NULL, "
        "PRIMARY KEY (generation_id, evaluator)) WITHOUT ROWID");
    store.execute(
        "INSERT INTO score SELECT generation_id, evaluator, version, value, extracted, status FROM "
        "new_score");
    store.execute("DROP TABLE new_score");
    store.execute("DROP TABLE rendered");
    store.execute("DROP TABLE baseline");
    store.execute("CREATE VIEW v_generation AS SELECT 'old'");
    store.execute("UPDATE meta SET value = '0' WHERE name = 'schema_version'");
  }
  const base::Error e = error_of([&] { ResultStore store(path, ResultStore::Mode::kReadOnly); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("version 0"));
  EXPECT_FALSE(std::filesystem::exists(path + ".bak-v0"));
  {
    ResultStore store(path);
    EXPECT_EQ(text(store, "SELECT value FROM meta WHERE name = 'schema_version'"),
              fmt::format("{}", kSchemaVersion));
    EXPECT_EQ(integer(store, "SELECT count(*) FROM generation WHERE fault = ''"), 12);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM v_generation"), 12);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM score WHERE facts = '{}'"), n_scores);
    EXPECT_EQ(text(store, all_schema), schema);
    // Its columns stand in another order than those of a new file.
    const auto parts = regrouped(store, {Axis::kCategory});
    EXPECT_EQ(integer(*parts, "SELECT count(*) FROM v_generation"), 12);
    EXPECT_EQ(text(*parts, "SELECT group_concat(tokens_hash) FROM generation"),
              text(store, "SELECT group_concat(tokens_hash) FROM generation"));
    store.save_baseline("main", 1, "");
  }
  // The copy is what was there before.
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open_v2((path + ".bak-v0").c_str(), &db, SQLITE_OPEN_READONLY, nullptr),
            SQLITE_OK);
  sqlite3_stmt* s = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(db, "SELECT value, (SELECT count(*) FROM generation) FROM meta", -1,
                               &s, nullptr),
            SQLITE_OK);
  ASSERT_EQ(sqlite3_step(s), SQLITE_ROW);
  EXPECT_EQ(sqlite3_column_int(s, 0), 0);
  EXPECT_EQ(sqlite3_column_int(s, 1), 12);
  sqlite3_finalize(s);
  sqlite3_close(db);
  // Opening again migrates nothing more.
  ResultStore again(path);
  EXPECT_FALSE(std::filesystem::exists(path + ".bak-v0-2"));
}

TEST(Migration, FromVersionTwoCountsTheStepsWithoutADraft) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.role != "method") return;
    for (StepRecord& s : g.turns[0].steps)
      if (s.accepted == 0) s.drafted = s.drafted_depth = 0, s.rows = 1;
  };
  const std::string turns =
      "SELECT group_concat(hex(tokens) || text || stop || n_steps || ' ' || drafted || ' ' || rows "
      "|| ' ' || undrafted || ' ' || decode_ns, ';') FROM (SELECT * FROM turn ORDER BY id)";
  const std::string columns = "SELECT group_concat(name) FROM pragma_table_info('turn')";
  std::string before, layout;
  {
    ResultStore store(path);
    tests::fill(store, run);
    before = text(store, turns);
    layout = text(store, columns);
    ASSERT_GT(integer(store, "SELECT sum(undrafted) FROM turn WHERE drafted > 0"), 0);
    ASSERT_GT(integer(store, "SELECT count(*) FROM node"), 0);
    tests::to_version_2(store);
  }
  ResultStore store(path);
  EXPECT_EQ(text(store, turns), before);
  EXPECT_EQ(text(store, columns), layout) << "wide columns stand last";
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_node_acceptance"), 0);
  EXPECT_EQ(text(store, "PRAGMA foreign_key_check"), "");
  EXPECT_GT(integer(store, "SELECT count(*) FROM step"), 0);
  // New rows join the old ones, and go with their generation.
  store.add_generation(1, 3, 1, tests::generation(run, run.arms[2], 0, 9, 0), {});
  EXPECT_EQ(integer(store, "SELECT count(*) FROM node"), 4);
  store.execute("DELETE FROM generation");
  for (const char* table : {"turn", "step", "node"})
    EXPECT_EQ(integer(store, fmt::format("SELECT count(*) FROM {}", table)), 0) << table;
}

TEST(Migration, FromVersionThreeMakesTheViewsAnew) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  const std::string views =
      "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE type = 'view' ORDER "
      "BY name)";
  std::string before;
  {
    ResultStore store(path);
    tests::fill(store, usual());
    before = text(store, views);
    tests::to_version_5(store);
    store.execute("DROP TABLE certificate");
    store.execute("CREATE VIEW v_identity AS SELECT 'old'");
    store.execute("UPDATE meta SET value = '3' WHERE name = 'schema_version'");
  }
  ResultStore store(path);
  EXPECT_EQ(text(store, views), before);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_identity"), 3);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), 12);
}

TEST(Migration, FromVersionFiveAsksTheTokensHowMuchTheyRepeat) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  SyntheticRun run = usual();
  run.tokens = 60;
  run.change = [](GenerationRecord& g, const tests::SyntheticArm&, int prompt, int, int) {
    std::vector<int32_t>& tokens = g.turns[0].tokens;
    if (prompt == 0)  // the last 40 run in a circle of 5
      for (size_t i = tokens.size() - 40; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>(i % 5);
    if (prompt == 1)  // and a failed one has no tokens
      g.status = "failed: of course", g.turns.clear(), g.texts.clear();
  };
  const std::string content =
      "SELECT group_concat(arm_id || ' ' || prompt_id || ' ' || coalesce(distinct_share, 'none') "
      "|| ' ' || cycle || ' ' || coalesce(asked, 'free'), ';') FROM (SELECT * FROM generation "
      "ORDER BY id)";
  const std::string tables =
      "SELECT group_concat(name, ' ') FROM (SELECT t.name || '.' || c.name AS name FROM "
      "sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY 1)";
  std::string before, layout;
  {
    ResultStore store(path);
    tests::fill(store, run);
    before = text(store, content);
    layout = text(store, tables);
    EXPECT_THAT(before, HasSubstr(" 40 free"));
    tests::to_version_5(store);
  }
  ResultStore store(path);
  EXPECT_EQ(text(store, content), before);
  EXPECT_EQ(text(store, tables), layout);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_generation WHERE degenerate"), 3);
  EXPECT_EQ(text(store, "PRAGMA foreign_key_check"), "");
  // New rows join the old ones, and go with their generation.
  GenerationRecord g = tests::generation(run, run.arms[2], 0, 9, 0);
  g.turns[0].asked = 7;
  g.turns[0].divergences = {{.index = 3, .expected = 1, .found = 2, .gap = 0.5, .spacing = 0.25}};
  g.clock = ClockRecord{.available_ns = 5};
  g.gpu = GpuRecord{.power_w = 300};
  store.add_generation(1, 3, 1, g, {});
  for (const char* table : {"divergence", "clock", "gpu"})
    EXPECT_EQ(integer(store, fmt::format("SELECT count(*) FROM {}", table)), 1) << table;
  store.execute("DELETE FROM generation");
  for (const char* table : {"divergence", "clock", "gpu"})
    EXPECT_EQ(integer(store, fmt::format("SELECT count(*) FROM {}", table)), 0) << table;
}

TEST(Migration, FromVersionSixGivesGpusATable) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  const std::string columns = "SELECT group_concat(name, ' ') FROM pragma_table_info('gpu')";
  std::string layout;
  {
    ResultStore store(path);
    tests::fill(store, usual());
    layout = text(store, columns);
    tests::to_version_6(store);
  }
  ResultStore store(path);
  EXPECT_EQ(text(store, columns), layout);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), 12);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM gpu"), 0);
}

TEST(Migration, FromVersionSevenGivesGpusTheirTimes) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  const std::string columns = "SELECT group_concat(name, ' ') FROM pragma_table_info('gpu')";
  std::string layout;
  {
    ResultStore store(path);
    SyntheticRun run = usual();
    run.change = [](GenerationRecord& g, const tests::SyntheticArm&, int, int, int) {
      g.gpu = GpuRecord{.energy_mj = 5, .busy = GpuBusy{.verify_ns = 7}};
    };
    tests::fill(store, run);
    layout = text(store, columns);
    tests::to_version_7(store);
  }
  ResultStore store(path);
  EXPECT_EQ(text(store, columns), layout);
  EXPECT_EQ(integer(store, "SELECT sum(energy_mj) FROM gpu"), 60);
  EXPECT_EQ(integer(store, "SELECT count(verify_ns) FROM gpu"), 0) << "was not measured";
}

TEST(Migration, FromVersionNineLeavesEnergiesUnknown) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    SyntheticRun run = usual();
    run.change = [](GenerationRecord& g, const tests::SyntheticArm&, int, int, int) {
      g.clock = ClockRecord{.available_ns = 5};
      g.gpu = GpuRecord{.energy_mj = 5};
    };
    tests::fill(store, run);
    tests::to_version_9(store);
  }
  {
    const ResultStore old(path, ResultStore::Mode::kReadOnly);
    EXPECT_FALSE(has_processor_energy(old)) << "read as it is";
    EXPECT_FALSE(energy_by_prompt(old, 1).empty()) << "a GPU's was stored before";
    EXPECT_EQ(find_generation(old, 1)->clock->energy_mj, std::nullopt);
  }
  ResultStore store(path);
  EXPECT_TRUE(has_processor_energy(store));
  EXPECT_EQ(integer(store, "SELECT count(*) FROM clock"), 12);
  EXPECT_EQ(integer(store, "SELECT count(energy_mj) FROM clock"), 0);
}

constexpr const char* kTallies =
    "SELECT group_concat(id || ' ' || iif(tally IS NULL, 'none', hex(tally)), ';') FROM (SELECT * "
    "FROM generation ORDER BY id)";
constexpr const char* kTriggers =
    "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE type = 'trigger' "
    "ORDER BY name)";

// Answers of two turns, of one, and none.
SyntheticRun run_of_tallies() {
  SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm&, int prompt, int, int) {
    if (prompt == 0) g.turns.push_back(g.turns[0]), g.texts.push_back("more");
    if (prompt == 1) g.status = "failed: of course", g.turns.clear(), g.texts.clear();
  };
  return run;
}

TEST(Migration, FromVersionNineCountsWhatReportsNeed) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  std::string tallies, triggers;
  {
    ResultStore store(path);
    tests::fill(store, run_of_tallies());
    tallies = text(store, kTallies), triggers = text(store, kTriggers);
    EXPECT_THAT(triggers, HasSubstr("turn_changed"));
    tests::to_version_9(store);
  }
  EXPECT_FALSE(has_tallies(ResultStore(path, ResultStore::Mode::kReadOnly))) << "read as it is";
  const ResultStore store(path);
  EXPECT_TRUE(has_tallies(store));
  EXPECT_EQ(text(store, kTallies), tallies);
  EXPECT_THAT(tallies, Not(HasSubstr("none")));
  EXPECT_EQ(text(store, kTriggers), triggers);
}

TEST(Migration, VersionTenOfDevelopmentBuildsGetsTallies) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  std::string tallies, triggers;
  {
    ResultStore store(path);
    tests::fill(store, run_of_tallies());
    tallies = text(store, kTallies), triggers = text(store, kTriggers);
    tests::to_version_10(store);
    tests::without_tallies(store);
  }
  EXPECT_FALSE(has_tallies(ResultStore(path, ResultStore::Mode::kReadOnly))) << "read as it is";
  for (int opened = 0; opened < 2; ++opened) {
    const ResultStore store(path);
    EXPECT_TRUE(has_tallies(store));
    EXPECT_EQ(text(store, kTallies), tallies);
    EXPECT_EQ(text(store, kTriggers), triggers);
  }
  ResultStore store(path);
  store.execute("DELETE FROM turn WHERE generation_id = 3");
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation WHERE tally IS NULL"), 1);
}

TEST(Migration, FromVersionTenGivesBatchesTheirTables) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  const std::string tables =
      "SELECT group_concat(name, ' ') FROM (SELECT t.name || '.' || c.name AS name FROM "
      "sqlite_schema t, pragma_table_info(t.name) c WHERE t.name LIKE '%batch%' ORDER BY 1, c.cid)";
  std::string layout, tallies;
  {
    ResultStore store(path);
    tests::fill(store, usual());
    layout = text(store, tables), tallies = text(store, kTallies);
    ASSERT_THAT(layout, HasSubstr("batch_step.gap_ns"));
    tests::to_version_10(store);
  }
  {
    const ResultStore old(path, ResultStore::Mode::kReadOnly);
    EXPECT_FALSE(has_batches(old)) << "read as it is";
    EXPECT_FALSE(find_generation(old, 1)->turns[0].batch);
    EXPECT_FALSE(std::filesystem::exists(path + ".bak-v10"));
  }
  ResultStore store(path);
  EXPECT_TRUE(has_batches(store));
  EXPECT_TRUE(std::filesystem::exists(path + ".bak-v10"));
  EXPECT_EQ(text(store, tables), layout);
  EXPECT_EQ(text(store, kTallies), tallies);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_batch_turn"), 12) << "all were decoded alone";
  EXPECT_EQ(store.next_batch_call(1), 1);
  // New rows join the old ones, and go with their generation.
  GenerationRecord g = tests::generation(usual(), usual().arms[2], 0, 9, 0);
  g.batch_call = 1;
  g.turns[0].batch.emplace().steps.resize(g.turns[0].steps.size());
  store.add_generation(1, 3, 1, g, {});
  EXPECT_EQ(integer(store, "SELECT count(*) FROM batch_turn"), 1);
  store.execute("DELETE FROM generation");
  for (const char* table : {"batch_turn", "batch_step"})
    EXPECT_EQ(integer(store, fmt::format("SELECT count(*) FROM {}", table)), 0) << table;
}

TEST(Migration, FromVersionEightLeavesPromptsOnTheirOwn) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    tests::fill(store, usual());
    tests::to_version_8(store);
  }
  {
    const ResultStore old(path, ResultStore::Mode::kReadOnly);
    EXPECT_FALSE(has_groups(old)) << "read as it is";
    EXPECT_FALSE(std::filesystem::exists(path + ".bak-v8"));
  }
  ResultStore store(path);
  EXPECT_TRUE(has_groups(store));
  EXPECT_EQ(integer(store, "SELECT count(*) FROM prompt WHERE group_name = ''"), 4);
  EXPECT_TRUE(std::filesystem::exists(path + ".bak-v8"));
}

// ---- kill -9 ----

// A child stores generation after generation and says so on a pipe; the parent kills it at a random
// moment. Everything the child reported is stored afterwards, whole, and the file is sound.
TEST(KillNine, WhatWasReportedIsStored) {
  TempFolder folder;
  const std::string path = folder.file("a.db");
  const SyntheticRun run = usual();
  base::Rng rng(20260102);
  int64_t reported = 0;
  for (int round = 0; round < 20; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(pipe_ends[0]);
      ResultStore store(path);
      const int64_t run_id = store.add_run(run_record("k"));
      const int64_t arm = store.add_arm(run_id, tests::arm_record(run, run.arms[2]));
      const int64_t prompt = store.add_prompt(run_id, tests::prompt_record("t", 0));
      for (int repeat = 0;; ++repeat) {
        if (store.has_generation(arm, prompt, repeat, 0)) continue;
        store.add_generation(run_id, arm, prompt, tests::generation(run, run.arms[2], 0, repeat, 0),
                             {});
        if (write(pipe_ends[1], "x", 1) != 1) _exit(1);
      }
    }
    close(pipe_ends[1]);
    char buffer[4096];
    if (round % 4 != 0) {  // every fourth child may be killed while it opens the file
      ASSERT_EQ(read(pipe_ends[0], buffer, 1), 1);
      ++reported;
    }
    usleep(static_cast<useconds_t>(rng.below(40'000)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (ssize_t n; (n = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) reported += n;
    close(pipe_ends[0]);
    if (reported == 0) continue;  // killed before the tables were made
    const ResultStore store(path);
    const int64_t stored = integer(store, "SELECT count(*) FROM generation");
    // At most one per round was committed but not yet reported.
    ASSERT_GE(stored, reported) << "seed 20260102, round " << round;
    ASSERT_LE(stored, reported + round + 1);
    ASSERT_EQ(integer(store, "SELECT max(repeat) + 1 FROM generation"), stored);
    ASSERT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
    ASSERT_EQ(integer(store, "SELECT count(*) FROM turn"), stored);
    ASSERT_EQ(text(store, "PRAGMA integrity_check"), "ok");
  }
  EXPECT_GT(reported, 20);  // else the test killed too early to say anything
}

}  // namespace
}  // namespace evalrun::results
