// Parts of a run brought together: in any order, again and again, with gaps and doubles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "results/certificates.h"
#include "results/merge/merge_runs.h"
#include "results/queries.h"
#include "tests/results/merge/parts.h"
#include "tests/temp_folder.h"

namespace evalrun::results {
namespace {

using ::testing::HasSubstr;
using tests::TempFolder;

constexpr int64_t kPerPrompt = 3 * 2, kAll = kPartPrompts * kPerPrompt;

class Merge : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 1; i <= 3; ++i)
      write_part(part(i), {.machine = fmt::format("host-{}", i), .shard = {i, 3}});
  }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string part(int i) const { return file(fmt::format("part-{}.db", i)); }
  MergeOutcome merge(const std::vector<std::string>& names, const std::string& out = "out.db") {
    std::vector<MergeInput> inputs;
    for (const std::string& name : names) inputs.push_back({name});
    return merge_runs(file(out), inputs);
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(file(name)); }
  TempFolder folder_;
};

TEST_F(Merge, PartsInAnyOrderAreTheWholeRun) {
  write_part(file("whole.db"), {});
  std::vector<int> order = {1, 2, 3};
  std::string first;
  int n = 0;
  do {
    const std::string out = fmt::format("out-{}.db", ++n);
    const MergeOutcome outcome = merge({part(order[0]), part(order[1]), part(order[2])}, out);
    EXPECT_EQ(outcome.stored, kAll);
    EXPECT_EQ(outcome.new_generations, kAll);
    EXPECT_EQ(outcome.runs, 3);
    EXPECT_EQ(outcome.copies + outcome.twice, 0);
    EXPECT_TRUE(outcome.complete());
    EXPECT_TRUE(outcome.missing.empty());
    EXPECT_EQ(outcome.machines, (std::vector<std::string>{"host-1", "host-2", "host-3"}));
    if (first.empty()) first = whole_content(file(out));
    EXPECT_EQ(whole_content(file(out)), first);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(n, 6);
  ResultStore whole(file("whole.db")), merged(file("out-1.db"));
  EXPECT_NE(text(merged, "SELECT finished FROM run"), "");
  // But for who measured, nothing tells them apart.
  whole.execute("UPDATE machine SET key = 'k', name = 'n'");
  merged.execute("DELETE FROM machine_fact");
  merged.execute("UPDATE generation SET machine_id = (SELECT min(id) FROM machine)");
  merged.execute(
      "UPDATE machine SET key = 'k', name = 'n' WHERE id = (SELECT min(id) FROM machine)");
  EXPECT_EQ(measured(merged), measured(whole));
  EXPECT_GT(measured(whole).size(), 100'000u);
}

TEST_F(Merge, TheFileIsSound) {
  merge({part(2), part(1), part(3)});
  const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(check_file(store), "ok");
  EXPECT_EQ(integer(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
  EXPECT_TRUE(wrong_tallies(store).empty());
  EXPECT_EQ(integer(store,
                    "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name IN "
                    "('generation_run', 'generation_prompt')"),
            2);
  // Calls of different processes have different numbers.
  EXPECT_EQ(integer(store,
                    "SELECT count(*) FROM (SELECT DISTINCT g.machine_id, b.call FROM "
                    "batch_turn b JOIN turn t ON t.id = b.turn_id JOIN generation g ON g.id = "
                    "t.generation_id)"),
            integer(store, "SELECT count(DISTINCT call) FROM batch_turn"));
  for (const char* suffix : {"-wal", "-shm", ".merging", ".merging-wal", ".merge-lock"})
    EXPECT_FALSE(exists(std::string("out.db") + suffix)) << suffix;
}

TEST_F(Merge, AgainAndPieceByPieceGivesTheSame) {
  merge({part(1), part(2), part(3)});
  const std::string once = whole_content(file("out.db"));
  const MergeOutcome again = merge({part(3), part(2), part(1)});
  EXPECT_EQ(again.new_generations, 0);
  EXPECT_EQ(again.copies, kAll);
  EXPECT_EQ(again.twice, 0);
  EXPECT_EQ(whole_content(file("out.db")), once);
  for (const int i : {2, 3, 1}) {
    const MergeOutcome piece = merge({part(i)}, "pieces.db");
    EXPECT_EQ(piece.new_generations, kAll / 3);
    EXPECT_EQ(piece.complete(), i == 1);
  }
  EXPECT_EQ(whole_content(file("pieces.db")), once);
  // Merged ones can be merged.
  merge({part(1), part(2)}, "left.db");
  merge({part(2), part(3)}, "right.db");
  EXPECT_EQ(merge({file("right.db"), file("left.db")}, "both.db").copies, kAll / 3);
  EXPECT_EQ(whole_content(file("both.db")), once);
}

TEST_F(Merge, GapsAreNamedAndTheRunIsUnfinished) {
  MergeOutcome outcome = merge({part(1), part(3)});
  EXPECT_FALSE(outcome.complete());
  EXPECT_EQ(outcome.stored, kAll * 2 / 3);
  EXPECT_EQ(outcome.incomplete, kPartPrompts / 3);
  ASSERT_EQ(outcome.missing.size(), 1u);
  EXPECT_EQ(outcome.missing[0].shard, (Shard{2, 3}));
  EXPECT_EQ(outcome.missing[0].incomplete, 3);
  EXPECT_FALSE(outcome.missing[0].here);
  ASSERT_EQ(outcome.first_gaps.size(), 3u);
  EXPECT_EQ(outcome.first_gaps[0].prompt, "gsm8k/1");
  EXPECT_EQ(outcome.first_gaps[0].stored, 0);
  EXPECT_EQ(outcome.first_gaps[0].shards, (std::vector<Shard>{{2, 3}}));
  EXPECT_THAT(outcome.commands, testing::ElementsAre(HasSubstr("--shard")));
  {
    const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
    EXPECT_EQ(text(store, "SELECT coalesce(finished, 'unfinished') FROM run"), "unfinished");
  }
  // One that was cut off within a prompt.
  {
    ResultStore cut(part(2));
    cut.execute("DELETE FROM generation WHERE id = (SELECT max(id) FROM generation)");
  }
  outcome = merge({part(2)});
  EXPECT_EQ(outcome.stored, kAll - 1);
  ASSERT_EQ(outcome.missing.size(), 1u);
  EXPECT_TRUE(outcome.missing[0].here);
  EXPECT_EQ(outcome.missing[0].incomplete, 1);
  ASSERT_EQ(outcome.first_gaps.size(), 1u);
  EXPECT_EQ(outcome.first_gaps[0].stored, kPerPrompt - 1);
}

TEST_F(Merge, AFileThatEndedBeforeItHadItsPromptsGivesWhatItHas) {
  {
    ResultStore cut(part(3));
    cut.execute("DELETE FROM prompt WHERE id > 4");
    cut.execute("DELETE FROM arm WHERE id = 3");
  }
  EXPECT_EQ(merge({part(3)}, "alone.db").incomplete, kPartPrompts);
  const MergeOutcome outcome = merge({part(3), part(1), part(2)});
  EXPECT_EQ(outcome.incomplete, 3) << "gsm8k/2, 5 and 8";
  const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM prompt"), kPartPrompts);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM arm"), 3);
}

TEST_F(Merge, OtherNumbersOfShardsFitTogether) {
  write_part(file("half.db"), {.machine = "host-9", .shard = {1, 2}});  // prompts 0, 2, 4, 6, 8
  const MergeOutcome outcome = merge({part(2), file("half.db")});       // and 1, 4, 7
  EXPECT_EQ(outcome.twice, kPerPrompt) << "of prompt 4";
  EXPECT_EQ(outcome.incomplete, 2) << "3 and 5";
  ASSERT_EQ(outcome.missing.size(), 3u);
  EXPECT_EQ(outcome.missing[0].shard, (Shard{2, 2}));
  EXPECT_EQ(outcome.missing[1].shard, (Shard{1, 3}));
  EXPECT_EQ(outcome.missing[2].shard, (Shard{3, 3}));
}

TEST_F(Merge, OfTwoMeasurementsTheOneThatBeganFirstStays) {
  write_part(file("late.db"),
             {.machine = "host-4", .shard = {1, 3}, .started = "2026-01-09T00:00:00Z"});
  write_part(file("early.db"),
             {.machine = "host-5", .shard = {1, 3}, .started = "2026-01-01T00:00:00Z"});
  std::string first;
  std::vector<std::string> order = {part(1), file("late.db"), file("early.db"), part(2), part(3)};
  std::sort(order.begin(), order.end());
  int n = 0;
  do {
    const std::string out = fmt::format("out-{}.db", n++);
    const MergeOutcome outcome = merge(order, out);
    EXPECT_EQ(outcome.twice, 2 * kAll / 3);
    EXPECT_EQ(outcome.first_twice.size(), MergeOutcome::kNamed);
    EXPECT_TRUE(outcome.complete());
    if (first.empty()) first = whole_content(file(out));
    ASSERT_EQ(whole_content(file(out)), first);
  } while (n < 20 && std::next_permutation(order.begin(), order.end()));
  const ResultStore store(file("out-0.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(text(store,
                 "SELECT DISTINCT m.name FROM generation g JOIN machine m ON m.id = "
                 "g.machine_id JOIN prompt p ON p.id = g.prompt_id WHERE p.name = 'gsm8k/0'"),
            "host-5");
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  // Piece by piece as well.
  for (const char* name : {"late.db", "part-1.db", "early.db", "part-3.db", "part-2.db"})
    merge({file(name)}, "pieces.db");
  EXPECT_EQ(whole_content(file("pieces.db")), first);
}

TEST_F(Merge, OneThatDidNotFailStays) {
  write_part(file("failed.db"), {.machine = "host-4",
                                 .shard = {1, 3},
                                 .started = "2026-01-01T00:00:00Z",
                                 .change = [](GenerationRecord& g, int prompt) {
                                   if (prompt == 0) g.status = "failed: no memory";
                                 }});
  for (const auto& names :
       {std::vector<std::string>{part(1), file("failed.db")}, {file("failed.db"), part(1)}}) {
    std::filesystem::remove(file("out.db"));
    merge(names);
    const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM generation WHERE status <> 'ok'"), 0);
    EXPECT_EQ(text(store,
                   "SELECT DISTINCT m.name FROM generation g JOIN machine m ON m.id = "
                   "g.machine_id JOIN prompt p ON p.id = g.prompt_id WHERE p.name = "
                   "'gsm8k/3'"),
              "host-4");
  }
}

TEST_F(Merge, OtherTokensOfTheSameCellAreAnError) {
  merge({part(1), part(2)});
  const std::string before = whole_content(file("out.db"));
  write_part(file("wrong.db"),
             {.machine = "host-4", .shard = {1, 3}, .change = [](GenerationRecord& g, int prompt) {
                if (prompt == 3) g.turns[0].tokens[5] += 1;
              }});
  for (const char* out : {"out.db", "new.db"}) {
    const base::Error e = error_of([&] { merge({part(1), file("wrong.db")}, out); });
    EXPECT_EQ(e.code(), base::ExitCode::kCorrectness);
    EXPECT_THAT(e.what(), HasSubstr("other tokens"));
    EXPECT_THAT(e.what(), HasSubstr("gsm8k/3"));
    EXPECT_THAT(e.what(), HasSubstr("arm ar"));
  }
  EXPECT_FALSE(exists("new.db"));
  EXPECT_FALSE(exists("new.db.merging"));
  EXPECT_EQ(whole_content(file("out.db")), before);
  // Where a method's drafts follow the machine, sampled tokens may follow its drafts.
  for (const std::string& name : {part(1), file("wrong.db")}) {
    ResultStore store(name);
    store.execute(
        "UPDATE arm SET settings = '{\"sampled\": \"same distribution\", \"steps\": "
        "\"follow the machine\"}'");
  }
  EXPECT_EQ(merge({part(1), file("wrong.db")}, "new.db").twice, kAll / 3);
}

TEST_F(Merge, ScoresOfEitherFileAreKept) {
  std::filesystem::copy_file(part(1), file("scored.db"));
  {
    ResultStore store(file("scored.db"));
    ScoreRecord score;
    score.evaluator = "later", score.version = "1", score.value = 0.25;
    store.put_score(integer(store, "SELECT max(id) FROM generation"), score);
    put_certificate(store, {"k", "2026-01-01", "pld", "holds", "greedy", "old"});
    put_certificate(store, {"other", "2026-01-01", "pld", "holds", "greedy", "here alone"});
  }
  {
    ResultStore store(part(1));
    put_certificate(store, {"k", "2026-02-01", "pld", "fails", "", "new"});
  }
  for (const auto& names :
       {std::vector<std::string>{part(1), file("scored.db")}, {file("scored.db"), part(1)}}) {
    std::filesystem::remove(file("out.db"));
    EXPECT_EQ(merge(names).copies, kAll / 3);
    const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
    EXPECT_EQ(real(store, "SELECT value FROM score WHERE evaluator = 'later'"), 0.25);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM score WHERE evaluator = 'exact'"), kAll / 3);
    EXPECT_EQ(text(store, "SELECT document FROM certificate WHERE key = 'k'"), "new");
    EXPECT_EQ(integer(store, "SELECT count(*) FROM certificate"), 2);
  }
}

TEST_F(Merge, ScoresOfOtherTokensGoWithThem) {
  // Read after part-1.db, and stays: it began earlier.
  write_part(file("z.db"), {.machine = "host-4",
                            .shard = {1, 3},
                            .started = "2026-01-01T00:00:00Z",
                            .change = [](GenerationRecord& g, int prompt) {
                              if (prompt == 3) g.turns[0].tokens[5] += 1;
                            }});
  for (const std::string& name : {part(1), file("z.db")}) {
    ResultStore store(name);
    store.execute(
        "UPDATE arm SET settings = '{\"sampled\": \"same distribution\", \"steps\": "
        "\"follow the machine\"}'");
  }
  ResultStore(part(1)).execute(
      "INSERT INTO score SELECT id, 'later', '1', 0.25, '', 'ok', '', 0, '{}' FROM generation");
  EXPECT_EQ(merge({part(1), file("z.db")}).twice, kAll / 3);
  const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM score WHERE evaluator = 'later'"),
            kAll / 3 - kPerPrompt);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM score WHERE evaluator = 'exact'"), kAll / 3);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

TEST_F(Merge, FactsThatMachinesDoNotShareAreTheirsAlone) {
  merge({part(1), part(2), part(3)});
  {
    const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
    EXPECT_EQ(environment(store, 1), (std::map<std::string, std::string>{{"cpu", "Some CPU"}}));
    ASSERT_EQ(machines(store, 1).size(), 3u);
    EXPECT_EQ(machines(store, 1)[1].record.facts.at("row_cost"), "of host-2");
  }
  // Of one machine, in two processes.
  write_part(file("a.db"), {.shard = {1, 2}});
  write_part(file("b.db"), {.shard = {2, 2}});
  EXPECT_EQ(merge({file("b.db"), file("a.db")}, "one.db").machines,
            std::vector<std::string>{"host-a"});
  const ResultStore one(file("one.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(environment(one, 1).at("row_cost"), "of host-a");
}

TEST_F(Merge, ArmsOfOtherKernelsAreOneArm) {
  write_part(file("old.db"), {.machine = "host-6", .shard = {2, 3}, .isa = "avx2"});
  {
    ResultStore store(file("old.db"));
    store.execute("UPDATE arm SET threads = 7, key = key || ' there', device = 'cuda:1'");
  }
  for (const int i : {1, 3}) {
    ResultStore store(part(i));
    store.execute("UPDATE arm SET device = 'cuda:0'");
  }
  const MergeOutcome outcome = merge({part(1), file("old.db"), part(3)});
  EXPECT_TRUE(outcome.complete());
  const ResultStore store(file("out.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(text(store,
                 "SELECT group_concat(label || ' ' || isa || ' ' || threads || ' ' || device, "
                 "'; ') FROM arm"),
            "ar avx2+avx512 0 cuda; ar (A/A) avx2+avx512 0 cuda; pld:k=4 avx2+avx512 0 cuda");
  // A CPU and a GPU are not.
  const base::Error e = error_of([&] { merge({part(2)}); });
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.what(), HasSubstr("part-2.db"));
  EXPECT_THAT(e.what(), HasSubstr("more arms than its plan"));
}

}  // namespace
}  // namespace evalrun::results
