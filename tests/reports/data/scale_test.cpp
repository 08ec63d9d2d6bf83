// Reports of one run must not read the others: the plans of all their queries use indexes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/figures/report.h"
#include "results/machines.h"
#include "results/queries.h"
#include "tests/reports/batch_run.h"
#include "tests/reports/data/query_watch.h"
#include "tests/reports/data/scale_store.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class ScaleTest : public ::testing::Test {
 protected:
  ScaleTest() : store_(folder_.file("a.db")) {
    tests::fill_at_scale(store_, {.runs = 3, .arms = 4, .prompts = 20, .steps = 20});
    watch_.take();
  }
  // Checks every query since the last call; returns how many there were.
  size_t check_plans() {
    const std::vector<tests::WatchedQuery> queries = watch_.take();
    for (const tests::WatchedQuery& q : queries)
      EXPECT_THAT(tests::full_scans(tests::query_plan(store_, q.sql)), IsEmpty()) << q.sql;
    watch_.take();
    return queries.size();
  }
  int64_t count(const std::string& table) {
    int64_t n = 0;
    store_.query("SELECT count(*) FROM " + table, {}, [&](const results::Row& row) {
      n = row.integer(0);
      return false;
    });
    return n;
  }
  tests::TempFolder folder_;
  tests::QueryWatch watch_;
  results::ResultStore store_;
};

TEST_F(ScaleTest, TheSyntheticFileIsWholeAndAddsUp) {
  EXPECT_EQ(count("generation"), 3 * 4 * 20);
  EXPECT_EQ(count("step"), 3 * 4 * 20 * 20);
  EXPECT_EQ(count("score"), 3 * 4 * 20);
  EXPECT_EQ(count("v_accounting"), 0);
  const Report report = build_report(store_, 2);
  EXPECT_THAT(report.rows, SizeIs(4 * 6)) << "five data sets and all of them";
  for (const ReportRow& r : report.rows) {
    EXPECT_EQ(r.counts.generations, r.counts.prompts);
    EXPECT_EQ(r.same_tokens.identical, r.same_tokens.compared);
    if (!r.arm.drafts()) continue;
    EXPECT_NEAR(*r.acceptance.tau, 2.5, 0.3);
    // Two ways to the same counts: from the steps and from the nodes of the drafted chains.
    ASSERT_EQ(r.acceptance.by_node.size(), r.acceptance.by_depth.size());
    for (size_t d = 0; d < r.acceptance.by_depth.size(); ++d) {
      EXPECT_EQ(r.acceptance.by_depth[d].tested, r.acceptance.by_node[d].tested);
      EXPECT_EQ(r.acceptance.by_depth[d].accepted, r.acceptance.by_node[d].accepted);
    }
  }
}

TEST_F(ScaleTest, EqualShapesGiveEqualFiles) {
  results::ResultStore other(folder_.file("b.db"));
  tests::fill_at_scale(other, {.runs = 3, .arms = 4, .prompts = 20, .steps = 20});
  EXPECT_EQ(to_json(build_report(other, 3)), to_json(build_report(store_, 3)));
}

TEST_F(ScaleTest, AShardIsARunOfItsOwnPromptsAndMachine) {
  const auto shard = [&](int number, bool own_prompts = false) {
    const std::string path = folder_.file(fmt::format("{}{}.db", number, own_prompts));
    results::ResultStore store(path);
    tests::fill_shard(store, {.arms = 4, .prompts = 10, .steps = 20}, {number, 3}, own_prompts);
    EXPECT_EQ(results::find_plan(store, 1)->prompts, 30);
    EXPECT_EQ(results::shards(store, 1), (std::vector<results::Shard>{{number, 3}}));
    EXPECT_EQ(results::machines(store, 1).size(), 1u);
    EXPECT_THAT(results::accounting_problems(store), IsEmpty());
    return load_run(store, 1);
  };
  const RunData first = shard(1), third = shard(3);
  EXPECT_EQ(first.prompts.size(), 30u) << "those of the plan";
  EXPECT_EQ(first.samples.size(), 40u);
  EXPECT_EQ(first.samples.front().prompt_id, 1);
  EXPECT_EQ(third.samples.front().prompt_id, 21);
  const RunData own = shard(3, true);
  EXPECT_EQ(own.prompts.size(), 10u);
  EXPECT_EQ(own.prompts.front().key, "prompt-20");
  EXPECT_EQ(own.samples.front().decode_ns, third.samples.front().decode_ns);
  // The third machine's processor gains less by drafting.
  const auto verify_ns = [](const RunData& data) {
    double ns = 0;
    for (const SampleRow& s : data.samples)
      if (s.arm_id == data.arms.back().id) ns += s.verify_ns;
    return ns;
  };
  EXPECT_GT(verify_ns(third), 1.05 * verify_ns(first));
}

TEST_F(ScaleTest, AReportOfOneRunReadsThatRun) {
  build_report(store_, 2);
  EXPECT_GT(check_plans(), 5u);
}

TEST_F(ScaleTest, AReportReadsTalliesAndNoTurns) {
  build_report(store_, 2);
  for (const tests::WatchedQuery& q : watch_.take())
    for (const char* rows : {"FROM turn", "JOIN turn", "FROM step", "FROM node"})
      EXPECT_THAT(q.sql, Not(HasSubstr(rows)));
}

TEST_F(ScaleTest, AReportWithoutTalliesIsTheSame) {
  const auto before = to_json(build_report(store_, 2));
  store_.execute("UPDATE generation SET tally = NULL");
  watch_.take();
  EXPECT_EQ(to_json(build_report(store_, 2)), before);
  EXPECT_GT(check_plans(), 5u);
}

TEST_F(ScaleTest, AComparisonReadsItsTwoRuns) {
  EXPECT_THAT(compare_runs(store_, 1, store_, 3).arms, SizeIs(2 * 6));
  EXPECT_GT(check_plans(), 5u);
}

// However many data sets and methods are predicted from them.
TEST_F(BatchRun, VerifyTimesAreReadOnceForAReport) {
  const int64_t run = fill();
  store_.execute("UPDATE prompt SET task = 'mbpp' WHERE name IN ('gsm8k/2', 'gsm8k/3')");
  tests::QueryWatch watch;
  const results::ResultStore store(store_.path(), results::ResultStore::Mode::kReadOnly);
  const std::map<int, double> table = {{1, 10}, {2, 12}, {3, 11}, {4, 20},
                                       {5, 25}, {6, 30}, {8, 40}, {10, 50}};
  const Report r = build_report(store, run, {.row_times = [&](const RunInfo&) {
                                  RowTimes times;
                                  times.one = [&](int n) { return table.at(n); };
                                  return times;
                                }});
  for (const char* dataset : {"gsm8k", "mbpp", "all"})
    EXPECT_TRUE(row(r, "pld:k=4, batch 2", dataset).batch->predicted) << dataset;
  std::vector<std::string> reads;
  for (const tests::WatchedQuery& query : watch.take())
    if (query.sql.find("a.model_hash = 'cafe'") != query.sql.npos) reads.push_back(query.sql);
  EXPECT_EQ(reads.size(), 2u) << "batch 1, and batch 2 for its best draft length";
  EXPECT_EQ(std::set<std::string>(reads.begin(), reads.end()).size(), reads.size());
}

TEST_F(ScaleTest, AFullScanIsFound) {
  for (const char* sql :
       {"SELECT count(*) FROM generation WHERE status = 'ok'", "SELECT sum(rows) FROM step",
        "SELECT * FROM turn t JOIN generation g ON g.id = t.generation_id", "SELECT * FROM node n",
        "SELECT * FROM v_sample", "SELECT count(*) FROM score"})
    EXPECT_THAT(tests::full_scans(tests::query_plan(store_, sql)), SizeIs(1)) << sql;
  EXPECT_THAT(tests::full_scans(tests::query_plan(store_, "SELECT * FROM run")), IsEmpty());
}

}  // namespace
}  // namespace evalrun::reports
