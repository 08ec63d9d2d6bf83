// The store: what goes in comes out, keys, views, and every way a file can be unfit.
#include "results/store.h"

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
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using ::testing::HasSubstr;
using tests::SyntheticRun;
using tests::TemporaryFolder;

int64_t integer(const ResultStore& store, const std::string& sql) {
  int64_t v = -1;
  store.query(sql, {}, [&](const Row& r) {
    v = r.integer(0);
    return false;
  });
  return v;
}
double real(const ResultStore& store, const std::string& sql) {
  double v = -1;
  store.query(sql, {}, [&](const Row& r) {
    v = r.number(0);
    return false;
  });
  return v;
}
std::string text(const ResultStore& store, const std::string& sql) {
  std::string v;
  store.query(sql, {}, [&](const Row& r) {
    v = r.text(0);
    return false;
  });
  return v;
}

// The error that opening or `f` ends in.
template <typename F>
base::Error error_of(const F& f) {
  try {
    f();
  } catch (const base::Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return base::usage_error("none");
}

RunRecord run_record(const std::string& key, const std::string& label = "") {
  RunRecord r;
  r.key = key;
  r.label = label;
  return r;
}

SyntheticRun usual() {
  SyntheticRun run;
  run.arms = tests::usual_arms();
  return run;
}

TEST(ResultStore, AFactLearntLaterJoinsTheEnvironmentAndStays) {
  const TemporaryFolder folder;
  ResultStore store(folder.file("r.db"));
  RunRecord run = run_record("k");
  run.environment["cpu"] = "one";
  const int64_t id = store.add_run(run);
  store.add_environment(id, "row_cost", "{}");
  store.add_environment(id, "row_cost", "{\"other\": 1}");
  store.add_environment(id, "cpu", "two");
  EXPECT_EQ(text(store, "SELECT group_concat(name || '=' || value) FROM environment"),
            "cpu=one,row_cost={}");
}

TEST(ResultStore, RoundTrip) {
  TemporaryFolder folder;
  const SyntheticRun run = usual();
  GenerationRecord g = tests::generation(run, run.arms[2], 1, 0, 0);
  g.seed = 0xFFFFFFFFFFFFFFFEull;  // does not fit a signed integer
  g.turns.push_back(g.turns[0]);
  g.turns[1].tokens = {-1, 0, 2147483647};
  g.turns[1].stop = StopReason::kStopToken;
  g.texts = {"first", "second \xF0\x9F\x98\x80"};
  {
    ResultStore store(folder.file("a.db"));
    RunRecord r{.key = "k",
                .label = "l",
                .suite = "s",
                .suite_json = "{}",
                .commit = "c",
                .version = "v",
                .started = "t",
                .command = "evalrun run",
                .environment = {{"cpu", "x"}, {"kernel", "y"}}};
    const int64_t run_id = store.add_run(r);
    ArmRecord a = tests::arm_record(run, run.arms[2]);
    a.settings = {{"EVALRUN_X", "1"}};
    const int64_t arm = store.add_arm(run_id, a);
    PromptRecord p = tests::prompt_record("gsm8k", 1);
    p.reference = "42";
    const int64_t prompt = store.add_prompt(run_id, p);
    EXPECT_FALSE(store.has_generation(arm, prompt, 0, 0));
    store.add_generation(
        run_id, arm, prompt, g,
        {{.evaluator = "e", .version = "1", .value = 0.5, .extracted = "x", .detail = ""},
         {.evaluator = "f",
          .version = "1",
          .value = std::nullopt,
          .extracted = "",
          .status = "odd",
          .detail = ""}});
    EXPECT_TRUE(store.has_generation(arm, prompt, 0, 0));
    EXPECT_FALSE(store.has_generation(arm, prompt, 1, 0));
    EXPECT_FALSE(store.has_generation(arm, prompt, 0, 1));
  }
  const ResultStore store(folder.file("a.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM environment"), 2);
  EXPECT_EQ(text(store, "SELECT settings FROM arm"), R"({"EVALRUN_X":"1"})");
  EXPECT_EQ(text(store, "SELECT turns FROM prompt"), R"(["question 1"])");
  EXPECT_EQ(text(store, "SELECT reference FROM prompt"), "42");
  EXPECT_EQ(static_cast<uint64_t>(integer(store, "SELECT seed FROM generation")), g.seed);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::string> texts;
  store.query(
      "SELECT tokens, text, stop, n_prompt_tokens, prefill_ns, decode_ns FROM turn ORDER BY idx",
      {}, [&](const Row& r) {
        const std::string bytes = r.blob(0);
        std::vector<int32_t> ids(bytes.size() / 4);
        std::memcpy(ids.data(), bytes.data(), bytes.size());
        const TurnRecord& t = g.turns[tokens.size()];
        EXPECT_EQ(r.text(2), to_string(t.stop));
        EXPECT_EQ(r.integer(3), t.n_prompt_tokens);
        EXPECT_EQ(r.integer(4), t.prefill_ns);
        EXPECT_EQ(r.integer(5), t.decode_ns);
        tokens.push_back(ids);
        texts.push_back(r.text(1));
        return true;
      });
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0], g.turns[0].tokens);
  EXPECT_EQ(tokens[1], g.turns[1].tokens);
  EXPECT_EQ(texts, g.texts);
  size_t i = 0;
  store.query(
      "SELECT s.rows, s.drafted, s.drafted_depth, s.accepted, s.emitted, s.target_forwards, "
      "s.draft_ns, s.verify_ns, s.commit_ns, s.other_ns FROM step s JOIN turn t ON t.id = "
      "s.turn_id "
      "WHERE t.idx = 0 ORDER BY s.idx",
      {}, [&](const Row& r) {
        const StepRecord& s = g.turns[0].steps.at(i++);
        const int64_t expected[] = {s.rows,      s.drafted,         s.drafted_depth, s.accepted,
                                    s.emitted,   s.target_forwards, s.draft_ns,      s.verify_ns,
                                    s.commit_ns, s.other_ns};
        for (int c = 0; c < r.columns(); ++c) EXPECT_EQ(r.integer(c), expected[c]) << r.name(c);
        return true;
      });
  EXPECT_EQ(i, g.turns[0].steps.size());
  // A score whose status is not ok has no value.
  EXPECT_EQ(integer(store, "SELECT count(*) FROM score WHERE value IS NULL"), 1);
  EXPECT_EQ(text(store, "SELECT evaluator FROM score WHERE value = 0.5"), "e");
}

TEST(ResultStore, EqualKeysGiveTheExistingRow) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  RunRecord r = run_record("k", "first");
  r.environment = {{"cpu", "x"}};
  const int64_t id = store.add_run(r);
  r.label = "second";
  EXPECT_EQ(store.add_run(r), id);
  EXPECT_EQ(text(store, "SELECT label FROM run"), "first");
  r.key = "other";
  EXPECT_NE(store.add_run(r), id);
  const SyntheticRun run = usual();
  ArmRecord a = tests::arm_record(run, run.arms[0]);
  const int64_t arm = store.add_arm(id, a);
  a.dtype = "other";
  EXPECT_EQ(store.add_arm(id, a), arm);
  const int64_t prompt = store.add_prompt(id, tests::prompt_record("t", 0));
  EXPECT_EQ(store.add_prompt(id, tests::prompt_record("t", 0)), prompt);
  EXPECT_NE(store.add_prompt(id, tests::prompt_record("t", 1)), prompt);
}

TEST(ResultStore, ASecondGenerationForTheSameCellIsRefused) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  const SyntheticRun run = usual();
  tests::fill(store, run);
  const int64_t before = integer(store, "SELECT count(*) FROM generation");
  EXPECT_THROW(store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 0, 0), {}),
               base::InternalError);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), before);
  // The store still works.
  store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 9, 0), {});
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), before + 1);
}

TEST(ResultStore, AFailureInTheMiddleStoresNothing) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  const SyntheticRun run = usual();
  tests::fill(store, run);
  const auto counts = [&] {
    return std::vector<int64_t>{integer(store, "SELECT count(*) FROM generation"),
                                integer(store, "SELECT count(*) FROM turn"),
                                integer(store, "SELECT count(*) FROM step"),
                                integer(store, "SELECT count(*) FROM score")};
  };
  const auto before = counts();
  const ScoreRecord s{
      .evaluator = "twice", .version = "1", .value = 1, .extracted = "", .detail = ""};
  EXPECT_THROW(store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 9, 0), {s, s}),
               base::InternalError);
  EXPECT_EQ(counts(), before);
  EXPECT_FALSE(store.has_generation(1, 1, 9, 0));
  store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 9, 0), {s});
  EXPECT_TRUE(store.has_generation(1, 1, 9, 0));
}

TEST(ResultStore, FindRunPrefersNumberThenKeyThenNewestLabelThenBaseline) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  EXPECT_FALSE(store.find_run("").has_value());
  const int64_t a = store.add_run(run_record("ka", "x"));
  const int64_t b = store.add_run(run_record("kb", "x"));
  const int64_t c = store.add_run(run_record("kc", fmt::format("{}", a)));
  EXPECT_EQ(store.find_run(""), c);
  EXPECT_EQ(store.find_run("latest"), c);
  EXPECT_EQ(store.find_run(fmt::format("{}", a)), a);  // not the run labelled so
  EXPECT_EQ(store.find_run("ka"), a);
  EXPECT_EQ(store.find_run("x"), b);
  EXPECT_FALSE(store.find_run("main").has_value());
  store.save_baseline("main", a, "first");
  EXPECT_EQ(store.find_run("main"), a);
  store.save_baseline("main", b, "again");
  EXPECT_EQ(store.find_run("main"), b);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM baseline"), 1);
  EXPECT_TRUE(store.remove_baseline("main"));
  EXPECT_FALSE(store.remove_baseline("main"));
}

TEST(ResultStore, ArmBytesKeepTheirPeak) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  const SyntheticRun run = usual();
  tests::fill(store, run);
  ArmRecord a = tests::arm_record(run, run.arms[0]);
  a.peak_bytes = 500, a.kv_bytes = 7;
  store.update_arm_bytes(1, a);
  a.peak_bytes = 400, a.kv_bytes = 9;
  store.update_arm_bytes(1, a);
  EXPECT_EQ(integer(store, "SELECT peak_bytes FROM arm WHERE id = 1"), 500);
  EXPECT_EQ(integer(store, "SELECT kv_bytes FROM arm WHERE id = 1"), 9);
}

// ---- views, by hand ----

TEST(Views, MedianOverRepeats) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.prompts_per_task = 1;
  run.repeats = 3;
  const int64_t times[] = {900, 100, 300};
  run.change = [&](GenerationRecord& g, const auto&, int, int repeat, int) {
    g.turns[0].decode_ns = times[repeat];
  };
  const int64_t odd = tests::fill(store, run);
  EXPECT_EQ(
      real(store,
           fmt::format("SELECT decode_ns FROM v_sample WHERE run_id = {} AND arm_id = 1", odd)),
      300);
  run.key = "even";
  run.repeats = 2;
  const int64_t even = tests::fill(store, run);
  EXPECT_EQ(real(store, fmt::format("SELECT min(decode_ns) FROM v_sample WHERE run_id = {}", even)),
            500);
  EXPECT_EQ(integer(store, "SELECT min(stable) FROM v_sample"), 1);
}

TEST(Views, ASampleIsUnstableWhenRepeatsDiffer) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.repeats = 3;
  run.change = [&](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int repeat, int) {
    if (a.role == "method" && prompt == 2 && repeat == 1) g.turns[0].tokens[5] += 1;
  };
  tests::fill(store, run);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_sample WHERE NOT stable"), 1);
  EXPECT_EQ(integer(store, "SELECT prompt_id FROM v_sample WHERE NOT stable"), 3);
  // 11 of 12 generations of the method equal the baseline's.
  EXPECT_DOUBLE_EQ(real(store, "SELECT identical_share FROM v_identity WHERE arm_id = 3"),
                   11.0 / 12);
  EXPECT_DOUBLE_EQ(real(store, "SELECT identical_share FROM v_identity WHERE arm_id = 2"), 1);
}

TEST(Views, FailedGenerationsAndFaultsStayOut) {
  TemporaryFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.arms[2].fault = "slow:10%";
  run.change = [&](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int, int) {
    if (a.role == "aa" && prompt == 0) {
      g.status = "failed: out of memory";
      g.turns.clear(), g.texts.clear();
    }
  };
  tests::fill(store, run);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_generation WHERE arm_id = 3"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_generation_all WHERE arm_id = 3"), 4);
  EXPECT_EQ(text(store, "SELECT DISTINCT fault FROM v_sample WHERE arm_id = 3"), "slow:10%");
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_sample WHERE arm_id = 2"), 3);
  EXPECT_EQ(integer(store, "SELECT failed FROM v_count WHERE arm_id = 2"), 1);
  EXPECT_EQ(integer(store, "SELECT generations FROM v_count WHERE arm_id = 2"), 4);
}

TEST(Views, AccountingFindsEachKindOfMiscount) {
  const std::vector<std::pair<std::string, std::function<void(TurnRecord&)>>> cases = {
      {"steps emitted another number of tokens", [](TurnRecord& t) { t.tokens.pop_back(); }},
      {"steps emitted another number of tokens", [](TurnRecord& t) { t.steps.pop_back(); }},
      {"a step emitted other than accepted + 1", [](TurnRecord& t) { t.steps[1].accepted += 1; }},
      {"accepted more than was drafted", [](TurnRecord& t) { t.steps[0].drafted_depth = 1; }},
      {"the last step emitted other than accepted or accepted + 1",
       [](TurnRecord& t) { t.steps.back().accepted = t.steps.back().emitted - 2; }},
  };
  const SyntheticRun run = usual();
  for (const auto& [problem, spoil] : cases) {
    TemporaryFolder folder;
    ResultStore store(folder.file("a.db"));
    tests::fill(store, run);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
    GenerationRecord g = tests::generation(run, run.arms[2], 0, 5, 0);
    spoil(g.turns[0]);
    store.add_generation(1, 3, 1, g, {});
    EXPECT_EQ(text(store, "SELECT problem FROM v_accounting"), problem);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 1) << problem;
  }
}

// ---- unfit files ----

TEST(UnfitFile, NotADatabase) {
  TemporaryFolder folder;
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
  TemporaryFolder folder;
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
  TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    tests::fill(store, usual());
    store.execute("UPDATE meta SET value = '7' WHERE name = 'schema_version'");
  }
  for (const auto mode : {ResultStore::Mode::kReadWrite, ResultStore::Mode::kReadOnly}) {
    const base::Error e = error_of([&] { ResultStore store(path, mode); });
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("version 7"));
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("up to {}", kSchemaVersion)));
    EXPECT_FALSE(e.hint().empty());
  }
}

TEST(UnfitFile, TruncatedDatabase) {
  TemporaryFolder folder;
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
  TemporaryFolder folder;
  const base::Error e = error_of([&] { ResultStore store(folder.file("no/such/a.db")); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("no/such/a.db"));
  const base::Error f =
      error_of([&] { ResultStore store(folder.file("b.db"), ResultStore::Mode::kReadOnly); });
  EXPECT_EQ(f.code(), base::ExitCode::kData);
  EXPECT_FALSE(std::filesystem::exists(folder.file("b.db")));
}

TEST(UnfitFile, LockedByAnotherProcessIsNamed) {
  TemporaryFolder folder;
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
  TemporaryFolder folder;
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
  TemporaryFolder folder;
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
  TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  { ResultStore store(path); }
  ResultStore store(path, ResultStore::Mode::kReadOnly);
  const base::Error e = error_of([&] { store.add_run(run_record("k")); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("cannot be written"));
}

TEST(UnfitFile, BadSqlIsTheUsersError) {
  TemporaryFolder folder;
  const ResultStore store(folder.file("a.db"));
  const base::Error e =
      error_of([&] { store.query("SELECT * FROM nothing", {}, [](const Row&) { return true; }); });
  EXPECT_EQ(e.code(), base::ExitCode::kUsage);
  EXPECT_THAT(e.what(), HasSubstr("nothing"));
}

// ---- migration ----

TEST(Migration, FromVersionZeroWithACopy) {
  TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  std::string schema;
  int64_t n_scores = 0;
  const std::string all_schema =
      "SELECT group_concat(name || sql, ';') FROM (SELECT name, sql FROM "
      "sqlite_schema WHERE type IN ('view', 'index') ORDER BY name)";
  {
    ResultStore store(path);
    tests::fill(store, usual());
    schema = text(store, all_schema);
    n_scores = integer(store, "SELECT count(*) FROM score");
    ASSERT_GT(n_scores, 0);
    // Back to the layout of version 0; a column can only be dropped when no view uses it.
    std::vector<std::string> views;
    store.query("SELECT name FROM sqlite_schema WHERE type = 'view'", {}, [&](const Row& r) {
      views.push_back(r.text(0));
      return true;
    });
    for (const std::string& v : views) store.execute("DROP VIEW " + v);
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

// ---- kill -9 ----

// A child stores generation after generation and says so on a pipe; the parent kills it at a random
// moment. Everything the child reported is there afterwards, whole, and the file is sound.
TEST(KillNine, WhatWasReportedIsStored) {
  TemporaryFolder folder;
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
