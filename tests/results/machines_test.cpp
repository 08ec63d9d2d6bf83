// Machines, plans and shards of a run: stored, copied, migrated.
#include "results/machines.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "results/copy_run.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using tests::SyntheticRun;
using tests::TempFolder;

const PlanRecord kPlan{.key = "p", .arms = 3, .prompts = 4, .repeats = 2, .samples = 1};

TEST(Machines, OneRowForEachKeyAndFactsStay) {
  const TempFolder folder;
  ResultStore store(folder.file("r.db"));
  const int64_t run = store.add_run(run_record("k")), other = store.add_run(run_record("o"));
  const int64_t first = store.add_machine(run, {"a", "host-a", {{"cpu", "one"}}});
  const int64_t second = store.add_machine(run, {"b", "host-b", {}});
  EXPECT_EQ(store.add_machine(run, {"a", "another name", {{"cpu", "two"}, {"load", "3"}}}), first);
  EXPECT_NE(store.add_machine(other, {"a", "host-a", {}}), first) << "of another run";
  store.add_machine_fact(second, "row_cost", "[]");
  store.add_machine_fact(second, "row_cost", "[1]");
  const auto found = machines(store, run);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].id, first);
  EXPECT_EQ(found[0].record.name, "host-a");
  EXPECT_EQ(found[0].record.facts,
            (std::map<std::string, std::string>{{"cpu", "one"}, {"load", "3"}}));
  EXPECT_EQ(found[1].record.key, "b");
  EXPECT_EQ(found[1].record.facts, (std::map<std::string, std::string>{{"row_cost", "[]"}}));
}

TEST(Machines, PlanAndShardsAreStoredOnce) {
  const TempFolder folder;
  ResultStore store(folder.file("r.db"));
  const int64_t run = tests::fill(store, usual());
  EXPECT_FALSE(find_plan(store, run));
  EXPECT_TRUE(shards(store, run).empty());
  store.add_plan(run, kPlan);
  PlanRecord changed = kPlan;
  changed.prompts = 9;
  store.add_plan(run, changed);
  EXPECT_EQ(find_plan(store, run), kPlan);
  EXPECT_EQ(kPlan.generations(), 24);
  store.add_shard(run, {2, 3}, {{1, 1}, {2, 2}, {3, 3}, {4, 2}});
  store.add_shard(run, {1, 3}, {{1, 1}, {2, 2}, {3, 3}, {4, 2}});
  store.add_shard(run, {2, 3}, {{1, 1}, {2, 2}, {3, 3}, {4, 2}});
  EXPECT_EQ(shards(store, run), (std::vector<Shard>{{1, 3}, {2, 3}}));
  EXPECT_EQ(text(store, "SELECT group_concat(prompt_id || ':' || number, ' ') FROM shard_prompt"),
            "1:1 2:2 3:3 4:2");
}

// A run whose second half another machine measured.
int64_t fill_with_two_machines(ResultStore& store, const std::string& key) {
  SyntheticRun run = usual();
  run.key = key;
  const int64_t id = tests::fill(store, run);
  const int64_t a = store.add_machine(id, {"a", "host-a", {{"cpu", "one"}}});
  const int64_t b = store.add_machine(id, {"b", "host-b", {{"cpu", "two"}}});
  store.execute("UPDATE generation SET machine_id = iif(id % 2 = 0, ?, ?) WHERE run_id = ?",
                {a, b, id});
  store.add_plan(id, kPlan);
  const int64_t prompt = integer(store, "SELECT max(id) FROM prompt");
  store.add_shard(id, {1, 2}, {{prompt, 2}});
  return id;
}

TEST(Machines, ACopiedRunKeepsThem) {
  const TempFolder folder;
  ResultStore source(folder.file("a.db")), target(folder.file("b.db"));
  fill_with_two_machines(source, "other");
  const int64_t run = fill_with_two_machines(source, "kept");
  source.save_baseline("main", run, "");
  fill_with_two_machines(target, "local");
  const int64_t copied = copy_baseline(source, "main", target, "main", false);
  const auto content = [](const ResultStore& store, int64_t id) {
    return text(store, fmt::format("SELECT group_concat(m.name || f.value || ' ' || g.repeat || "
                                   "g.tokens_hash || g.total_ns, ';') FROM generation g JOIN "
                                   "machine m ON m.id = g.machine_id JOIN machine_fact f ON "
                                   "f.machine_id = m.id WHERE g.run_id = {}",
                                   id)) +
           text(store, fmt::format("SELECT group_concat(p.key || s.number || s.count, ';') FROM "
                                   "prompt p JOIN shard_prompt s ON s.prompt_id = p.id WHERE "
                                   "p.run_id = {}",
                                   id));
  };
  EXPECT_EQ(content(target, copied), content(source, run));
  EXPECT_NE(content(target, copied), "");
  EXPECT_EQ(find_plan(target, copied), kPlan);
  EXPECT_EQ(shards(target, copied), (std::vector<Shard>{{1, 2}}));
  EXPECT_EQ(integer(target, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  target.execute("DELETE FROM run");
  EXPECT_EQ(integer(target,
                    "SELECT (SELECT count(*) FROM machine) + (SELECT count(*) FROM "
                    "machine_fact) + (SELECT count(*) FROM plan) + (SELECT count(*) FROM "
                    "shard) + (SELECT count(*) FROM shard_prompt)"),
            0);
}

TEST(MachineMigration, FromVersionTwelveLeavesMachinesUnknown) {
  const TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    ResultStore store(path);
    store.save_baseline("main", tests::fill(store, usual()), "");
    tests::to_version_12(store);
  }
  {
    const ResultStore old(path, ResultStore::Mode::kReadOnly);
    EXPECT_FALSE(has_machines(old)) << "read as it is";
    EXPECT_TRUE(machines(old, 1).empty());
    EXPECT_FALSE(find_plan(old, 1));
    EXPECT_TRUE(shards(old, 1).empty());
    ResultStore target(folder.file("b.db"));
    const int64_t copied = copy_baseline(old, "main", target, "main", false);
    EXPECT_GT(integer(target, "SELECT count(*) FROM generation WHERE machine_id IS NULL"), 0);
    EXPECT_FALSE(find_plan(target, copied));
  }
  ResultStore store(path);
  EXPECT_TRUE(has_machines(store));
  EXPECT_TRUE(std::filesystem::exists(path + ".bak-v12"));
  EXPECT_GT(integer(store, "SELECT count(*) FROM generation WHERE machine_id IS NULL"), 0);
  EXPECT_EQ(integer(store, "SELECT count(machine_id) FROM generation"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
  GenerationRecord g = tests::generation(usual(), usual().arms[0], 0, 9, 0);
  g.machine_id = store.add_machine(1, {"a", "host-a", {}});
  store.add_generation(1, 1, 1, g, {});
  EXPECT_EQ(integer(store, "SELECT count(machine_id) FROM generation"), 1);
}

}  // namespace
}  // namespace evalrun::results
