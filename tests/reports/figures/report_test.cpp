// The table's numbers, by hand and against the documented views.
#include "reports/figures/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "results/regroup.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using results::ResultStore;
using results::Row;
using ::testing::HasSubstr;
using tests::SyntheticArm;
using tests::SyntheticRun;
using tests::TempFolder;

TEST_F(ReportTest, ByHand) {
  // Prompts emit 33, 37, 41, 45 tokens: N - 1 = 32, 36, 40, 44, together 152. AR: 152 steps of 10
  // ms. pld emits 4, 2, 1, 3 in turn: 10 tokens per 4 steps of 12 ms, 4 drafted each, accepting 3,
  // 1, 0, 2.
  //   32: 3 rounds (30) + cut to 2 tokens          -> 13 steps, accepted 18 + 2
  //   36: 3 rounds (30) + 4 + 2                    -> 14 steps, accepted 18 + 3 + 1
  //   40: 4 rounds                                 -> 16 steps, accepted 24
  //   44: 4 rounds + 4                             -> 17 steps, accepted 24 + 3
  const Report r = report();
  ASSERT_EQ(r.rows.size(), 3u);
  const ReportRow& ar = row(r, "ar", "gsm8k");
  EXPECT_EQ(ar.counts.prompts, 4);
  EXPECT_EQ(ar.counts.samples, 1);
  EXPECT_EQ(ar.counts.repeats, 1);
  EXPECT_EQ(ar.acceptance.steps, 152);
  EXPECT_EQ(ar.acceptance.tau, 1.0);  // exactly
  EXPECT_EQ(ar.acceptance.de, 1.0);
  EXPECT_EQ(ar.speed.speedup, 1.0);
  EXPECT_FALSE(ar.speed.interval.has_value());
  EXPECT_DOUBLE_EQ(*ar.speed.tok_s, 100);
  EXPECT_EQ(ar.acceptance.accepted_per_step, 0.0);
  EXPECT_FALSE(ar.acceptance.alpha_draft.has_value());  // nothing drafted: no ratio, not zero
  EXPECT_DOUBLE_EQ(*ar.why.t_ratio, 1);
  EXPECT_DOUBLE_EQ(*ar.why.overhead, 0.01);  // 0.1 of 10 ms
  EXPECT_NEAR(*ar.why.residual, 0.01, 1e-15);

  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.acceptance.steps, 13 + 14 + 16 + 17);
  EXPECT_EQ(pld.acceptance.emitted, 152);
  EXPECT_EQ(pld.acceptance.drafted, 4 * 60);
  EXPECT_EQ(pld.acceptance.accepted, 20 + 22 + 24 + 27);
  EXPECT_DOUBLE_EQ(*pld.acceptance.tau, 152.0 / 60);
  EXPECT_DOUBLE_EQ(*pld.acceptance.accepted_per_step, 93.0 / 60);
  EXPECT_DOUBLE_EQ(*pld.acceptance.alpha_draft, 93.0 / 240);
  EXPECT_DOUBLE_EQ(*pld.acceptance.alpha_share, 93.0 / 152);
  EXPECT_DOUBLE_EQ(*pld.speed.tok_s, 152 / (60 * 0.012));
  EXPECT_DOUBLE_EQ(*pld.speed.speedup, 152.0 * 10 / (60 * 12));
  EXPECT_DOUBLE_EQ(*pld.why.t_ratio, 11.5 / 9.9);
  EXPECT_DOUBLE_EQ(*pld.why.draft_share, 0.2 / 10);
  EXPECT_NEAR(*pld.why.overhead, 0.3 / 10, 1e-15);
  EXPECT_EQ(pld.same_tokens.share, 1.0);
  EXPECT_EQ(pld.same_tokens.compared, 4);
  // Interval: the jackknife of ln S, from the per-prompt numbers above; the AR terms cancel, for
  // T_i is N_i steps.
  const double tokens[] = {32, 36, 40, 44}, steps[] = {13, 14, 16, 17};
  std::vector<double> logs;
  double squares = 0;
  for (int i = 0; i < 4; ++i) {
    logs.push_back(std::log((152 - tokens[i]) / (60 - steps[i])));
    squares += tokens[i] * tokens[i];
  }
  // Degrees of freedom: n_eff - 1, the baseline's being the smaller one; the kurtosis leaves more.
  const double n_eff = 152 * 152 / squares;
  EXPECT_NEAR(pld.speed.n_eff, n_eff, 1e-9);
  const double half = base::student_t_quantile(0.975, n_eff - 1) * 3 / 2 *
                      base::sample_sd(logs);  // (n - 1) / sqrt(n)
  EXPECT_NEAR(pld.speed.interval->lo, *pld.speed.speedup * std::exp(-half), 1e-9);
  EXPECT_NEAR(pld.speed.interval->hi, *pld.speed.speedup * std::exp(half), 1e-9);
  // exact scores 1, 0, 1 and one unscored.
  const Quality& q = pld.quality.at("exact@1");
  EXPECT_EQ(q.n, 3);
  EXPECT_EQ(q.unscored, 1);
  EXPECT_DOUBLE_EQ(q.value, 2.0 / 3);
  // Wilson, 2 of 3: (2/3 + z^2/6 -+ z sqrt(2/27 + z^2/36)) / (1 + z^2/3), z = 1.959964.
  ASSERT_TRUE(q.interval.has_value());
  EXPECT_NEAR(q.interval->lo, 0.207660, 1e-6);
  EXPECT_NEAR(q.interval->hi, 0.938508, 1e-6);
  EXPECT_EQ(q.compared, 3);
  EXPECT_EQ(q.differing, 0);
  EXPECT_EQ(q.statuses, (std::map<std::string, int64_t>{{"nothing found", 1}, {"ok", 3}}));
  EXPECT_EQ(row(r, "ar", "gsm8k").quality.at("exact@1").compared, 0) << "not with itself";
}

// By category, the rows are those of runs that hold one category each.
TEST_F(ReportTest, PartsOfADataSetAddUpToIt) {
  const int64_t id = tests::fill(store_, run_);
  store_.execute("UPDATE prompt SET category = CASE WHEN id % 2 = 0 THEN 'even' ELSE 'odd' END");
  const auto parts = results::regrouped(store_, {results::Axis::kCategory});
  const Report whole = build_report(store_, id), r = build_report(*parts, id);
  EXPECT_EQ(r.run.id, whole.run.id);
  for (const char* arm : {"ar", "pld:k=4"}) {
    const ReportRow& even = row(r, arm, "gsm8k / even");
    const ReportRow& odd = row(r, arm, "gsm8k / odd");
    const ReportRow& both = row(whole, arm, "gsm8k");
    EXPECT_EQ(even.counts.prompts, 2);
    EXPECT_EQ(even.counts.prompts + odd.counts.prompts, both.counts.prompts);
    EXPECT_EQ(even.acceptance.steps + odd.acceptance.steps, both.acceptance.steps);
    EXPECT_EQ(even.acceptance.accepted + odd.acceptance.accepted, both.acceptance.accepted);
    EXPECT_EQ(*row(r, arm, "all").speed.tok_s, *both.speed.tok_s);
    EXPECT_EQ(even.quality.at("exact@1").n + odd.quality.at("exact@1").n,
              both.quality.at("exact@1").n);
  }
  // No language was given: nothing is cut.
  const auto same = results::regrouped(store_, {results::Axis::kLanguage});
  EXPECT_EQ(row(build_report(*same, id), "ar", "gsm8k").counts.prompts, 4);
}

TEST_F(ReportTest, EqualsTheViews) {
  run_.tasks = {"gsm8k", "chat"};
  run_.prompts_per_task = 5;
  run_.repeats = 3;
  run_.samples = 2;
  base::Rng rng(1);
  run_.change = [&](GenerationRecord& g, const SyntheticArm& a, int, int, int) {
    g.turns[0].decode_ns += static_cast<int64_t>(rng.below(50'000'000));
    if (a.role == "method" && rng.below(4) == 0) g.turns[0].tokens[0] += 1;
    if (a.role == "method")
      for (auto& s : g.turns[0].steps)
        if (s.accepted == 0) s.drafted = s.drafted_depth = 0, s.rows = 2;
  };
  const int64_t run_id = tests::fill(store_, run_);
  const Report r = build_report(store_, run_id);
  int checked = 0;
  const auto same = [](const std::optional<double>& v, const Row& row, int column) {
    ASSERT_EQ(v.has_value(), !row.is_null(column)) << row.name(column);
    if (v) {
      EXPECT_NEAR(*v, row.number(column), 1e-12 * std::fabs(*v)) << row.name(column);
    }
  };
  store_.query(
      "SELECT a.label, s.task, s.n_prompts, s.tok_s, s.speedup, s.tau, s.t_ratio, s.draft_share, "
      "s.overhead, s.residual, c.accepted_per_step, c.de, c.alpha_draft, c.alpha_share, "
      "iif(a.role = 'method', c.no_draft, NULL), c.rows_per_step, c.steps, "
      "c.emitted, i.identical_share, q.value, q.n FROM v_speed s "
      "JOIN arm a ON a.id = s.arm_id "
      "JOIN v_acceptance c ON c.arm_id = s.arm_id AND c.task = s.task "
      "JOIN v_identity i ON i.arm_id = s.arm_id AND i.task = s.task "
      "JOIN v_quality q ON q.arm_id = s.arm_id AND q.task = s.task WHERE s.run_id = ?",
      {run_id}, [&](const Row& v) {
        const ReportRow& x = row(r, v.text(0), v.text(1));
        EXPECT_EQ(x.counts.prompts, v.integer(2));
        int column = 3;
        for (const auto& value :
             {x.speed.tok_s, x.speed.speedup, x.acceptance.tau, x.why.t_ratio, x.why.draft_share,
              x.why.overhead, x.why.residual, x.acceptance.accepted_per_step, x.acceptance.de,
              x.acceptance.alpha_draft, x.acceptance.alpha_share, x.acceptance.no_draft,
              x.acceptance.rows_per_step})
          same(value, v, column++);
        EXPECT_EQ(x.acceptance.steps, v.number(column++));
        EXPECT_EQ(x.acceptance.emitted, v.number(column++));
        EXPECT_DOUBLE_EQ(*x.same_tokens.share, v.number(column++));
        EXPECT_DOUBLE_EQ(x.quality.at("exact@1").value, v.number(column++));
        EXPECT_EQ(x.quality.at("exact@1").n, v.integer(column++));
        ++checked;
        return true;
      });
  EXPECT_EQ(checked, 6);
  EXPECT_LT(*row(r, "pld:k=4", "all").same_tokens.share, 1);
}

TEST_F(ReportTest, AMigratedRunKeepsItsReport) {
  run_.tasks = {"gsm8k", "chat"};
  run_.repeats = 2;
  run_.change = [](GenerationRecord& g, const SyntheticArm&, int, int repeat, int) {
    g.turns[0].nodes.clear();  // version 2 had none
    g.turns[0].decode_ns += 1000 * repeat;
  };
  const TempFolder folder;
  Report before;
  {
    ResultStore store(folder.file("old.db"));
    before = build_report(store, tests::fill(store, run_));
    tests::to_version_2(store);
  }
  const ResultStore store(folder.file("old.db"));
  const Report after = build_report(store, 1);
  EXPECT_EQ(to_json(after), to_json(before));
  EXPECT_EQ(to_csv(after), to_csv(before));
  EXPECT_EQ(to_text(after), to_text(before));
}

TEST_F(ReportTest, FailuresAreCountedAndLeftOutOfBothArms) {
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
    if (a.role != "method" || prompt != 3) return;
    g.status = "failed: context full";
    g.turns.clear(), g.texts.clear();
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.counts.failed, 1);
  EXPECT_EQ(pld.counts.generations, 4);
  EXPECT_EQ(pld.counts.prompts, 3);
  EXPECT_EQ(pld.counts.unpaired, 1);
  // 108 tokens in 43 steps; AR over the same three prompts.
  EXPECT_DOUBLE_EQ(*pld.speed.speedup, 108.0 * 10 / (43 * 12));
  EXPECT_EQ(row(r, "ar", "gsm8k").counts.prompts, 4);
  EXPECT_THAT(to_markdown(r), HasSubstr("Failed: 1 of 4 generations of pld:k=4"));
  EXPECT_THAT(to_text(r), HasSubstr("pld:k=4 (1 failed)"));
}

TEST_F(ReportTest, AnArmThatOnlyFailedHasARowWithoutFigures) {
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int, int, int) {
    if (a.role != "method") return;
    g.status = "failed: no draft model";
    g.turns.clear(), g.texts.clear();
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.counts.failed, 4);
  EXPECT_FALSE(pld.speed.speedup.has_value());
  EXPECT_FALSE(pld.speed.tok_s.has_value());
  const auto written = nlohmann::json::parse(to_json(r));
  EXPECT_TRUE(written[2]["speedup"].is_null());
  EXPECT_EQ(written[2]["failed"], 4);
}

TEST_F(ReportTest, PlantedFaultsAreLeftOutAndSaidSo) {
  run_.arms[2].fault = "slow:10%";
  const Report r = report();
  EXPECT_EQ(r.hidden_faults, 4);
  for (const ReportRow& x : r.rows) EXPECT_NE(x.arm.role, "method");
  EXPECT_THAT(to_text(r), HasSubstr("4 generations with planted faults are left out"));
}

TEST_F(ReportTest, AnUnfinishedRunSaysHowFarItIs) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)), ::testing::Not(HasSubstr("Unfinished")));
  store_.execute("UPDATE run SET finished = NULL, command = 'evalrun run quick'");
  EXPECT_THAT(
      to_text(build_report(store_, id)),
      HasSubstr("Unfinished: all 12 generations are stored, answers are still to be judged; "
                "resume it with the build that began it (evalrun 0.1.0, commit "
                "0123456789ab): evalrun run quick"));
  store_.execute("DELETE FROM generation WHERE arm_id = (SELECT max(id) FROM arm)");
  EXPECT_THAT(to_text(build_report(store_, id)),
              HasSubstr("Unfinished: 8 of 12 generations are stored; resume it"));
  store_.execute("DELETE FROM generation");
  try {
    build_report(store_, id);
    FAIL() << "nothing is there";
  } catch (const base::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("evalrun run quick"));
  }
}

TEST_F(ReportTest, RowsOfSeveralDataSetsAndThePool) {
  run_.tasks = {"zebra", "ant"};
  const Report r = report();
  ASSERT_EQ(r.rows.size(), 9u);
  EXPECT_EQ(r.rows[0].dataset, "zebra");  // order of measurement, not of names
  EXPECT_EQ(r.rows[3].dataset, "ant");
  EXPECT_EQ(r.rows[6].dataset, "all");
  EXPECT_EQ(r.rows[8].counts.prompts, 8);
  EXPECT_EQ(r.rows[8].acceptance.steps, 120);
  EXPECT_EQ(r.rows[8].quality.at("exact@1").n, 6);
}

TEST_F(ReportTest, UnknownAndEmptyRuns) {
  EXPECT_THROW(require_run(store_, ""), base::Error);
  const int64_t id = tests::fill(store_, run_);
  EXPECT_EQ(require_run(store_, ""), id);
  EXPECT_EQ(require_run(store_, "synthetic"), id);
  try {
    require_run(store_, "nothing");
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("1 (synthetic)"));
  }
  EXPECT_THROW(build_report(store_, 99), base::Error);
  results::RunRecord empty;
  empty.key = "empty";
  EXPECT_THROW(build_report(store_, store_.add_run(empty)), base::Error);
}

// Functional at size; the time is printed, not asserted (shared machines).
TEST_F(ReportTest, TwentyThousandGenerations) {
  run_.prompts_per_task = 1112;
  run_.tokens = 30;
  run_.repeats = 6;
  store_.execute("PRAGMA synchronous = OFF");
  // Lengths would grow with the prompt's number; keep them all the same.
  run_.change = [&](GenerationRecord& g, const SyntheticArm& a, int, int, int) {
    results::TurnRecord& t = g.turns[0];
    const SyntheticRun small{.tokens = 30, .arms = {}, .change = {}};
    t.steps = tests::generation(small, a, 0, 0, 0).turns[0].steps;
    t.tokens.resize(30);
    t.decode_ns = 0;
    for (const auto& s : t.steps)
      t.decode_ns += s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns;
  };
  const int64_t id = tests::fill(store_, run_);
  const auto start = std::chrono::steady_clock::now();
  const Report r = build_report(store_, id);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      std::chrono::steady_clock::now() - start)
                      .count();
  int64_t n = 0;
  for (const ReportRow& x : r.rows) n += x.counts.generations;
  EXPECT_GT(n, 20'000);
  EXPECT_EQ(row(r, "pld:k=4", "gsm8k").counts.prompts, 1112);
  std::printf("report over %lld generations: %lld ms\n", static_cast<long long>(n),
              static_cast<long long>(ms));
}

}  // namespace
}  // namespace evalrun::reports
