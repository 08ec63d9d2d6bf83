// A run and a baseline carried to another file: every row, new numbers, all or nothing.
#include "results/copy_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "results/certificates.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using ::testing::HasSubstr;
using tests::SyntheticRun;
using tests::TempFolder;

SyntheticRun run_named(const std::string& key, int prompts = 2) {
  SyntheticRun run = usual();
  run.key = key;
  run.prompts_per_task = prompts;
  run.change = [](GenerationRecord& g, const tests::SyntheticArm&, int prompt, int, int) {
    g.turns[0].asked = 9;
    g.turns[0].divergences = {{.index = prompt, .found = 4, .gap = 0.5}};
    g.batch_call = 1 + prompt / 2;
    BatchTurnRecord& batch = g.turns[0].batch.emplace();
    batch.slot = prompt % 2, batch.first_token_ns = 31, batch.wall_ns = 41 + prompt;
    for (size_t i = 0; i < g.turns[0].steps.size(); ++i)
      batch.steps.push_back({.number = static_cast<int32_t>(i), .members = 2, .ns = 51});
    g.clock = ClockRecord{.device_mhz = 2000, .available_ns = 9, .others_ns = prompt};
    g.gpu = GpuRecord{
        .energy_mj = 100 + prompt, .slowed_by = "heat", .busy = GpuBusy{.commit_ns = 7 + prompt}};
  };
  return run;
}

// All that a run holds, without the numbers of its rows.
std::string content(const ResultStore& store, int64_t run_id) {
  std::string all;
  for (const char* sql :
       {"SELECT key, label, suite_json, commit_id, started, finished FROM run WHERE id = ?1",
        "SELECT name, value FROM environment WHERE run_id = ?1 ORDER BY name",
        "SELECT key, label, role, model_hash, settings, peak_bytes FROM arm WHERE run_id = ?1 "
        "ORDER BY key",
        "SELECT p.key, p.task, p.name, p.turns, p.reference, r.text FROM prompt p LEFT JOIN "
        "rendered r ON r.hash = p.rendered_hash WHERE p.run_id = ?1 ORDER BY p.key",
        "SELECT a.key, p.key, g.repeat, g.sample, g.total_ns, g.tokens_hash, t.idx, t.decode_ns, "
        "hex(t.tokens), t.text, s.idx, s.rows, s.accepted, s.verify_ns FROM generation g JOIN arm "
        "a ON a.id = g.arm_id JOIN prompt p ON p.id = g.prompt_id JOIN turn t ON t.generation_id "
        "= g.id LEFT JOIN step s ON s.turn_id = t.id WHERE g.run_id = ?1 ORDER BY 1, 2, 3, 4, 7, "
        "11",
        "SELECT a.key, p.key, n.depth, n.rank, n.tested, n.accepted FROM node n JOIN turn t ON "
        "t.id = n.turn_id JOIN generation g ON g.id = t.generation_id JOIN arm a ON a.id = "
        "g.arm_id JOIN prompt p ON p.id = g.prompt_id WHERE g.run_id = ?1 ORDER BY 1, 2, 3, 4",
        "SELECT a.key, p.key, g.cycle, g.asked, d.idx, d.found, d.gap, c.device_mhz, c.others_ns, "
        "u.energy_mj, u.slowed_by, u.commit_ns, hex(g.tally) FROM generation g JOIN clock c ON "
        "c.generation_id = "
        "g.id JOIN "
        "gpu u "
        "ON u.generation_id = g.id JOIN arm a ON a.id = g.arm_id "
        "JOIN prompt p ON p.id = g.prompt_id JOIN turn t ON t.generation_id = g.id JOIN divergence "
        "d ON d.turn_id = t.id WHERE g.run_id = ?1 ORDER BY 1, 2, 5",
        "SELECT a.key, p.key, b.call, b.slot, b.first_token_ns, b.wall_ns, s.idx, s.number, "
        "s.members, s.ns FROM batch_turn b JOIN batch_step s ON s.turn_id = b.turn_id JOIN turn t "
        "ON t.id = b.turn_id JOIN generation g ON g.id = t.generation_id JOIN arm a ON a.id = "
        "g.arm_id JOIN prompt p ON p.id = g.prompt_id WHERE g.run_id = ?1 ORDER BY 1, 2, 7",
        "SELECT a.key, p.key, c.evaluator, c.version, c.value, c.facts FROM score c JOIN "
        "generation g ON g.id = c.generation_id JOIN arm a ON a.id = g.arm_id JOIN prompt p ON "
        "p.id = g.prompt_id WHERE g.run_id = ?1 ORDER BY 1, 2, 3, 4"}) {
    all += "--\n";
    store.query(sql, {run_id}, [&](const Row& row) {
      for (int i = 0; i < row.columns(); ++i) all += row.text(i) + "|";
      all += "\n";
      return true;
    });
  }
  return all;
}

int64_t rows(const ResultStore& store) {
  return integer(store,
                 "SELECT (SELECT count(*) FROM run) + (SELECT count(*) FROM arm) + (SELECT "
                 "count(*) FROM generation) + (SELECT count(*) FROM turn) + (SELECT count(*) FROM "
                 "step) + (SELECT count(*) FROM baseline)");
}

constexpr const char* kRender =
    "INSERT OR REPLACE INTO rendered SELECT rendered_hash, 'as rendered' FROM prompt";
constexpr int kPrompts = 20;

class CopyRun : public ::testing::Test {
 protected:
  CopyRun() : source_(folder_.file("a.db")), target_(folder_.file("b.db")) {
    tests::fill(source_, run_named("other", 3));  // so that no number starts at 1
    run_ = tests::fill(source_, run_named("kept", kPrompts));
    ScoreRecord score;
    score.evaluator = "exact", score.version = "1", score.value = 0.5;
    const int64_t turn = integer(source_, "SELECT max(id) FROM turn");
    source_.execute("INSERT INTO node VALUES (?, 9, 3, 7, 5)", {turn});
    source_.put_score(integer(source_, "SELECT max(id) FROM generation"), score);
    source_.execute(kRender);
    put_certificate(source_, {"k", "2026-01-01", "pld", "holds", "greedy", "{}"});
    source_.save_baseline("main", run_, "as released");
  }
  TempFolder folder_;
  ResultStore source_, target_;
  int64_t run_ = 0;
};

TEST_F(CopyRun, EveryRowUnderNewNumbers) {
  const int64_t first = tests::fill(target_, run_named("local", 2));
  target_.execute(kRender);  // of the prompts that both have
  const std::string untouched = content(target_, first);
  const int64_t copied = copy_baseline(source_, "main", target_, "theirs", false);
  EXPECT_EQ(copied, first + 1);
  EXPECT_EQ(content(target_, copied), content(source_, run_));
  EXPECT_THAT(content(target_, copied), HasSubstr("as rendered"));
  EXPECT_THAT(content(target_, copied), HasSubstr("|9|3|7|5|"));
  EXPECT_THAT(content(target_, copied), HasSubstr("|2|1|31|44|0|0|2|51|"));
  EXPECT_THAT(content(target_, copied), HasSubstr("exact|1|0.5|"));
  EXPECT_EQ(content(target_, first), untouched);
  EXPECT_EQ(integer(target_, "SELECT count(*) FROM run"), 2) << "the other run stays where it is";
  EXPECT_EQ(integer(target_, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  EXPECT_EQ(integer(target_, "SELECT max(id) - count(*) FROM generation"), 0) << "no gaps";
  EXPECT_EQ(text(target_, "SELECT name || run_id || note FROM baseline"), "theirs2as released");
  EXPECT_EQ(text(target_, "SELECT saved FROM baseline"),
            text(source_, "SELECT saved FROM baseline"));
  EXPECT_TRUE(find_certificate(target_, "k").has_value());
}

TEST_F(CopyRun, FromAFileThatHasNoGroups) {
  tests::to_version_8(source_);
  const ResultStore old(folder_.file("a.db"), ResultStore::Mode::kReadOnly);
  const int64_t copied = copy_baseline(old, "main", target_, "theirs", false);
  EXPECT_EQ(integer(target_, "SELECT count(*) FROM prompt WHERE group_name = ''"), kPrompts);
  EXPECT_EQ(
      integer(target_, "SELECT count(*) FROM generation WHERE tally IS NOT generation_tally(id)"),
      0)
      << "counted here";
  EXPECT_GT(integer(target_, "SELECT count(*) FROM turn"), 0) << copied;
}

TEST_F(CopyRun, TheSameRunIsNotCopiedTwice) {
  const int64_t first = copy_baseline(source_, "main", target_, "main", false);
  const int64_t before = rows(target_);
  EXPECT_EQ(copy_baseline(source_, "main", target_, "again", false), first);
  EXPECT_EQ(rows(target_), before + 1);
}

TEST_F(CopyRun, OtherMeasurementsUnderTheSameKeyAreRefused) {
  tests::fill(target_, run_named("kept", kPrompts));
  target_.execute("UPDATE generation SET total_ns = total_ns + 1 WHERE id = 1");
  const int64_t before = rows(target_);
  const base::Error e = error_of([&] { copy_baseline(source_, "main", target_, "main", false); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("not its measurements"));
  EXPECT_THAT(e.what(), HasSubstr("b.db: run 1"));
  EXPECT_EQ(rows(target_), before);
  // One that is not finished is not the same either.
  target_.execute("UPDATE generation SET total_ns = total_ns - 1 WHERE id = 1");
  target_.execute("DELETE FROM generation WHERE id = 2");
  error_of([&] { copy_baseline(source_, "main", target_, "main", false); });
}

TEST_F(CopyRun, ATakenNameIsRefusedUnlessReplaced) {
  const int64_t local = tests::fill(target_, run_named("local"));
  target_.save_baseline("main", local, "mine");
  const int64_t before = rows(target_);
  const base::Error e = error_of([&] { copy_baseline(source_, "main", target_, "main", false); });
  EXPECT_EQ(e.code(), base::ExitCode::kUsage);
  EXPECT_THAT(e.what(), HasSubstr("'main' already: run 1"));
  EXPECT_EQ(rows(target_), before);
  EXPECT_EQ(copy_baseline(source_, "main", target_, "main", true), 2);
  EXPECT_EQ(text(target_, "SELECT run_id || note FROM baseline"), "2as released");
}

TEST_F(CopyRun, AllOrNothingOnAFullDisk) {
  const int64_t before = rows(target_);
  // The statement in the middle of the copy finds no page left.
  const int64_t pages = integer(target_, "PRAGMA page_count");
  target_.query(fmt::format("PRAGMA max_page_count = {}", pages + 8), {},
                [](const Row&) { return false; });
  const base::Error e = error_of([&] { copy_baseline(source_, "main", target_, "main", false); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("no space left"));
  EXPECT_EQ(rows(target_), before);
  target_.query("PRAGMA max_page_count = 100000", {}, [](const Row&) { return false; });
  EXPECT_EQ(copy_baseline(source_, "main", target_, "main", false), 1) << "and works with space";
}

TEST_F(CopyRun, ExportIsOneFile) {
  const std::string path = folder_.file("main.db");
  export_baseline(source_, "main", path);
  for (const char* suffix : {"-wal", "-shm", "-journal", ".tmp", ".tmp-wal"})
    EXPECT_FALSE(std::filesystem::exists(path + suffix)) << suffix;
  const ResultStore exported(path, ResultStore::Mode::kReadOnly);
  EXPECT_EQ(content(exported, 1), content(source_, run_));
  EXPECT_EQ(integer(exported, "SELECT count(*) FROM run"), 1);
  const std::string before = base::sha256_file(path);
  const base::Error e = error_of([&] { export_baseline(source_, "main", path); });
  EXPECT_THAT(e.what(), HasSubstr("exists already"));
  EXPECT_EQ(base::sha256_file(path), before);
  error_of([&] { export_baseline(source_, "main", folder_.file("no/such/main.db")); });
}

}  // namespace
}  // namespace evalrun::results
