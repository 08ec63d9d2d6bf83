// Scores of a report: pass@k, and shares of answers that score better than the control's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "reports/figures/report.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::ResultStore;

// Of two samples each, by prompt: one better, two, none and none. Four prompts are at most four
// answers, and fewer where they belong together.
TEST_F(ReportTest, SharesOfBetterAnswersAreOfIndependentPrompts) {
  run_.samples = 2;
  const int64_t id = tests::fill(store_, run_);
  store_.execute("UPDATE score SET value = 0.5, status = 'ok'");
  store_.execute(
      "UPDATE score SET value = 1 WHERE generation_id IN (SELECT g.id FROM generation g JOIN arm a "
      "ON a.id = g.arm_id WHERE a.role = 'method' AND (g.prompt_id = 2 OR (g.prompt_id = 1 AND "
      "g.sample = 0)))");
  const auto quality = [&] {
    return row(build_report(store_, id), "pld:k=4", "gsm8k").quality.at("exact@1");
  };
  const Quality alone = quality();
  EXPECT_EQ(alone.compared, 8);
  EXPECT_EQ(alone.better, 3);
  EXPECT_DOUBLE_EQ(alone.better_share.value, 3.0 / 8);
  EXPECT_DOUBLE_EQ(alone.equal_share.value, 5.0 / 8);
  EXPECT_EQ(alone.worse_share.value, 0);
  EXPECT_EQ(alone.better_share.n_eff, 4);
  // Wilson's of 1.5 of 4.
  ASSERT_TRUE(alone.better_share.interval);
  EXPECT_NEAR(alone.better_share.interval->lo, 0.091899, 1e-6);
  EXPECT_NEAR(alone.better_share.interval->hi, 0.780573, 1e-6);
  // Two groups, of which 3/4 and 0 are better: a standard error of 3/8. Of one answer a prompt the
  // variance is 3/8 * 5/8 * 4/3, as of 20/9 answers: Wilson's of 2. None of 2 is worse.
  store_.execute("UPDATE prompt SET group_name = (id - 1) / 2");
  const Quality grouped = quality();
  EXPECT_NEAR(grouped.better_share.n_eff, 20.0 / 9, 1e-9);
  ASSERT_TRUE(grouped.better_share.interval && grouped.worse_share.interval);
  EXPECT_NEAR(grouped.better_share.interval->lo, 0.056095, 1e-6);
  EXPECT_NEAR(grouped.better_share.interval->hi, 0.858310, 1e-6);
  EXPECT_EQ(grouped.worse_share.interval->lo, 0);
  EXPECT_NEAR(grouped.worse_share.interval->hi, 0.657620, 1e-6);
  store_.execute("UPDATE prompt SET group_name = 'one'");
  EXPECT_FALSE(quality().better_share.interval);
}

// Another run was measured meanwhile, so this one's generations do not follow each other: its
// scores are found all the same. A generation has a status, too.
TEST_F(ReportTest, ScoresAreFoundAmongThoseOfOtherRuns) {
  run_.samples = 2;
  const int64_t id = tests::fill(store_, run_);
  store_.execute("UPDATE score SET value = 0.5, status = 'ok'");
  const auto compared = [&] {
    return row(build_report(store_, id), "pld:k=4", "gsm8k").quality.at("exact@1").compared;
  };
  EXPECT_EQ(compared(), 8);
  store_.execute(
      "DELETE FROM generation WHERE id = (SELECT g.id FROM generation g JOIN arm a ON a.id = "
      "g.arm_id WHERE a.label = 'pld:k=4' AND g.prompt_id = 2 AND g.sample = 1)");
  EXPECT_EQ(compared(), 7);
}

// n and c of four problems; with one sample fewer or one not judged, pass@k is not reported.
TEST_F(ReportTest, PassAtKIsTheUnbiasedEstimator) {
  run_.samples = 10;
  {
    ResultStore store(folder_.file("pass.db"));
    const int64_t id = tests::fill(store, run_);
    store.execute(
        "INSERT INTO score SELECT g.id, 'pass', 'evalrun', "
        // c = 0, 1, 5, 10 of 10
        "CASE WHEN g.sample < CASE p.name WHEN 'gsm8k/0' THEN 0 WHEN 'gsm8k/1' THEN 1 "
        "WHEN 'gsm8k/2' THEN 5 ELSE 10 END THEN 1.0 ELSE 0.0 END, '', 'x', '', 0, '{}' "
        "FROM generation g JOIN prompt p ON p.id = g.prompt_id WHERE p.task = 'gsm8k'");
    const Report r = build_report(store, id);
    const Quality& q = row(r, "pld:k=4", "gsm8k").quality.at("pass@evalrun");
    EXPECT_EQ(q.pass_at.size(), 10u);
    EXPECT_NEAR(q.pass_at.at(1), (0 + 0.1 + 0.5 + 1) / 4, 1e-12);
    // 1 - C(5, 3) / C(10, 3) = 1 - 10 / 120; 1 - C(9, 3) / C(10, 3) = 0.3
    EXPECT_NEAR(q.pass_at.at(3), (0 + 0.3 + (1 - 10.0 / 120) + 1) / 4, 1e-12);
    EXPECT_NEAR(q.pass_at.at(10), (0 + 1 + 1 + 1) / 4.0, 1e-12);
    EXPECT_NEAR(q.value, q.pass_at.at(1), 1e-12);
    EXPECT_EQ(q.unsandboxed, 0);
    store.execute("UPDATE score SET facts = '{\"sandbox\":\"none\"}' WHERE evaluator = 'pass'");
    EXPECT_THAT(to_text(build_report(store, id)), ::testing::HasSubstr("40 UNSANDBOXED"));
    EXPECT_NO_THROW(build_report(store, id, {.pass_k = {1, 10}}));
    try {
      build_report(store, id, {.pass_k = {20}});
      FAIL() << "20 of 10 samples";
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      EXPECT_THAT(e.what(), ::testing::HasSubstr("pass@20"));
    }
    store.execute(
        "UPDATE score SET value = NULL, status = 'sandbox_error' WHERE evaluator = 'pass' AND "
        "generation_id = (SELECT min(generation_id) FROM score WHERE evaluator = 'pass')");
    const Report hurt = build_report(store, id);
    EXPECT_TRUE(row(hurt, "ar", "gsm8k").quality.at("pass@evalrun").pass_at.empty());
    EXPECT_EQ(row(hurt, "ar", "gsm8k").quality.at("pass@evalrun").unscored, 40);
    EXPECT_EQ(row(hurt, "ar", "gsm8k").quality.at("pass@evalrun").n, 0) << "no mean over the rest";
    EXPECT_THROW(build_report(store, id, {.pass_k = {1}}), base::Error);
    EXPECT_EQ(row(hurt, "pld:k=4", "gsm8k").quality.at("pass@evalrun").pass_at.size(), 10u);
  }
}

}  // namespace
}  // namespace evalrun::reports
