// run --shard, merge, compare --tokens: a suite in three shards is the suite in one piece.
#include <filesystem>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

constexpr int kClusterPrompts = 6, kClusterNew = 12;

class Cluster : public CommandTest {
 protected:
  Cluster() { write_prompts(folder_, kClusterPrompts); }
  // As a machine of that name; "" = this one.
  ProgramResult measure(const std::string& db, const std::vector<std::string>& more = {},
                        const std::string& machine = "", const std::string& threads = "1") {
    std::vector<std::string> words = run_arguments(kClusterNew, {"-r", "2"});
    words.insert(words.end(), more.begin(), more.end());
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "--db") words[i + 1] = db;
      if (words[i] == "-t") words[i + 1] = threads;
    }
    std::vector<std::string> command = {"env", "EVALRUN_MACHINE=" + machine};
    for (const std::string& word : evalrun_command(words)) command.push_back(word);
    return run_command_in(folder_, command);
  }
  std::string value(const std::string& db, const std::string& sql) {
    return query_value(folder_.file(db), sql);
  }
  void in_three_shards() {
    for (int i = 1; i <= 3; ++i) {
      const ProgramResult result = measure(
          fmt::format("s{}.db", i), {"--shard", fmt::format("{}/3", i)}, i == 3 ? "other" : "");
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
  }
};

TEST_F(Cluster, ThreeShardsAreTheRunInOnePiece) {
  ASSERT_EQ(measure("whole.db").exit_code, 0);
  in_three_shards();
  const ProgramResult merged = run({"merge", "all.db", "s2.db", "s3.db", "s1.db"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err << merged.out;
  EXPECT_THAT(merged.out, HasSubstr("36 of 36 generations, 36 new; 3 runs of 2 machines"));
  EXPECT_THAT(merged.out, HasSubstr("complete"));
  const ProgramResult equal = run({"compare", "whole.db", "all.db", "--tokens"});
  EXPECT_EQ(equal.exit_code, 0) << equal.out << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("equal: 36 generations"));
  // Keys and places as well.
  for (const char* sql :
       {"SELECT group_concat(key, ' ') FROM (SELECT key FROM arm ORDER BY id)",
        "SELECT group_concat(key, ' ') FROM (SELECT key FROM prompt ORDER BY id)",
        "SELECT group_concat(x, ';') FROM (SELECT a.label || p.key || repeat || ' ' || block || ' "
        "' "
        "|| slot || ' ' || seed AS x FROM generation g JOIN arm a ON a.id = g.arm_id JOIN prompt p "
        "ON p.id = g.prompt_id ORDER BY a.id, p.id, repeat)",
        "SELECT key FROM plan"})
    EXPECT_EQ(value("all.db", sql), value("whole.db", sql)) << sql;
  EXPECT_EQ(value("whole.db", "SELECT count(*) FROM machine"), "1");
  EXPECT_EQ(value("all.db",
                  "SELECT group_concat(n) FROM (SELECT count(*) AS n FROM generation GROUP "
                  "BY machine_id ORDER BY n)"),
            "12,24");
  EXPECT_EQ(value("all.db", "SELECT count(*) FROM generation WHERE machine_id IS NULL"), "0");
  EXPECT_NE(value("all.db", "SELECT finished FROM run"), "");
  EXPECT_EQ(check_integrity(folder_.file("all.db")), "ok");
  EXPECT_EQ(run({"report", "--db", "all.db"}).exit_code, 0);
  EXPECT_EQ(run({"validate", "all.db"}).exit_code, 0);
  // Other tokens, and JSON.
  change_stored(
      folder_.file("all.db"),
      "UPDATE generation SET tokens_hash = 'x' WHERE id = (SELECT max(id) FROM generation)");
  const ProgramResult different = run({"compare", "whole.db", "all.db", "--tokens", "--json"});
  EXPECT_EQ(different.exit_code, 1) << different.err;
  EXPECT_EQ(json::parse(different.out)["differing"]["tokens"], 1);
  EXPECT_THAT(run({"compare", "whole.db", "all.db", "--tokens"}).out, HasSubstr("other tokens: 1"));
  expect_refused(run({"compare", "whole.db,whole.db", "all.db", "--tokens"}), 2, "two runs");
  expect_refused(run({"compare", "whole.db", "all.db", "--tokens", "--adjust", "holm"}), 2,
                 "--adjust");
}

TEST_F(Cluster, WhatIsMissingIsNamedAndMeasuredAnywhere) {
  in_three_shards();
  change_stored(folder_.file("s2.db"),
                "DELETE FROM generation WHERE prompt_id = (SELECT max(prompt_id) "
                "FROM generation)");
  ProgramResult merged = run({"merge", "all.db", "s1.db", "s2.db", "--json"});
  EXPECT_EQ(merged.exit_code, 4) << merged.err;
  const json outcome = json::parse(merged.out);
  EXPECT_FALSE(outcome["complete"].get<bool>());
  ASSERT_EQ(outcome["missing_shards"].size(), 2u);
  EXPECT_EQ(outcome["missing_shards"][0]["number"], 2);
  EXPECT_TRUE(outcome["missing_shards"][0]["here"].get<bool>());
  EXPECT_EQ(outcome["missing_shards"][1]["number"], 3);
  EXPECT_FALSE(outcome["missing_shards"][1]["here"].get<bool>());
  merged = run({"merge", "all.db", "s1.db"});
  EXPECT_EQ(merged.exit_code, 4);
  EXPECT_THAT(merged.out,
              HasSubstr("shard 2/3: 1 of its 2 prompts lack generations; it was cut off"));
  EXPECT_THAT(merged.out,
              HasSubstr("shard 3/3: all its 2 prompts lack generations; no file is of it"));
  EXPECT_THAT(merged.out, HasSubstr("--shard"));
  EXPECT_EQ(value("all.db", "SELECT coalesce(finished, 'unfinished') FROM run"), "unfinished");
  // The rest of a shard in the merged file, by another machine with other threads.
  const ProgramResult rest = measure("all.db", {"--shard", "2/3"}, "third", "2");
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(value("all.db", "SELECT count(*) FROM arm"), "3");
  EXPECT_EQ(value("all.db", "SELECT count(*) FROM run"), "1");
  EXPECT_EQ(value("all.db", "SELECT coalesce(finished, 'unfinished') FROM run"), "unfinished");
  EXPECT_EQ(run({"merge", "all.db", "s3.db"}).exit_code, 0);
  EXPECT_NE(value("all.db", "SELECT coalesce(finished, 'unfinished') FROM run"), "unfinished");
  ASSERT_EQ(measure("whole.db").exit_code, 0);
  EXPECT_EQ(run({"compare", "whole.db", "all.db", "--tokens"}).exit_code, 0);
}

TEST_F(Cluster, ShardsInOneFileAreOneRun) {
  ASSERT_EQ(measure("all.db", {"--shard", "1/2"}).exit_code, 0);
  EXPECT_EQ(value("all.db", "SELECT coalesce(finished, 'unfinished') FROM run"), "unfinished");
  ASSERT_EQ(measure("all.db", {"--shard", "2/2"}).exit_code, 0);
  EXPECT_NE(value("all.db", "SELECT coalesce(finished, 'unfinished') FROM run"), "unfinished");
  EXPECT_EQ(value("all.db", "SELECT count(*) FROM shard"), "2");
  const ProgramResult again = measure("all.db", {"--shard", "2/2"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("nothing was measured again"));
}

TEST_F(Cluster, PlansOfShards) {
  const ProgramResult text = measure("p.db", {"--shard", "2/3", "--plan"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("shard 2 of 3: 2 of the 6 prompts of the plan"));
  EXPECT_THAT(text.out, HasSubstr("12 generations"));
  const json plan = json::parse(measure("p.db", {"--shard", "2/3", "--plan", "--json"}).out);
  EXPECT_EQ(plan["shard"]["number"], 2);
  EXPECT_EQ(plan["shard"]["plan_prompts"], 6);
  EXPECT_EQ(plan["run_key"], plan["shard"]["plan_key"]);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("p.db")));
}

TEST_F(Cluster, Refusals) {
  expect_refused(measure("r.db", {"--shard", "4/3"}), 2, "--shard 4/3");
  expect_refused(measure("r.db", {"--shard", "1/7"}), 2, "only 6 can be filled");
  expect_refused(measure("r.db", {"--shard", "1/2", "--no-resume"}), 2, "--nonce");
  expect_refused(run({"merge", "all.db", "none.db"}), 7, "none.db");
  expect_refused(run({"merge", "all.db"}), 2, "in is required");
  ASSERT_EQ(measure("a.db", {"--shard", "1/2"}).exit_code, 0);
  ASSERT_EQ(measure("b.db", {"--shard", "2/2", "--seed", "9"}).exit_code, 0);
  expect_refused(run({"merge", "all.db", "a.db", "b.db"}), 3, "\"seed\" of the suite is 1 and 9");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("all.db")));
}

TEST_F(Cluster, AGivenTableOfRowCostsIsUsedAndNotMeasured) {
  folder_.write(
      "cost.json",
      R"({"context": 64, "bytes": 1000, "rounds": 3, "rows": [)"
      R"({"rows": 1, "ms": 1, "q1_ms": 1, "q3_ms": 1, "phases": {"weights": 1, "attention":)"
      R"( 0, "norms": 0, "head": 0, "waits": 0}}, {"rows": 8, "ms": 1.5, "q1_ms": 1.5,)"
      R"( "q3_ms": 1.5, "phases": {"weights": 1.5, "attention": 0, "norms": 0, "head": 0,)"
      R"( "waits": 0}}]})");
  const std::vector<std::string> options = {"--row-cost", "cost.json", "--methods",
                                            "pld:adaptive=true"};
  ASSERT_EQ(measure("whole.db", options).exit_code, 0);
  for (int i = 1; i <= 2; ++i) {
    std::vector<std::string> shard = options;
    shard.insert(shard.end(), {"--shard", fmt::format("{}/2", i)});
    ASSERT_EQ(measure(fmt::format("s{}.db", i), shard).exit_code, 0);
  }
  ASSERT_EQ(run({"merge", "all.db", "s1.db", "s2.db"}).exit_code, 0);
  const ProgramResult equal = run({"compare", "whole.db", "all.db", "--tokens"});
  EXPECT_EQ(equal.exit_code, 0) << equal.out;
  EXPECT_EQ(value("all.db", "SELECT count(*) FROM environment WHERE name = 'row_cost'"), "0");
  EXPECT_EQ(value("all.db", "SELECT count(*) FROM environment WHERE name = 'row_cost_given'"), "1");
  folder_.write("cost.json", "{}");
  expect_refused(measure("r.db", {"--row-cost", "cost.json"}), 7, "no table of row costs");
}

}  // namespace
}  // namespace evalrun::tests
