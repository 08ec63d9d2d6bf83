// The table's numbers, by hand and against the documented views.
#include "reports/figures/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "results/certificates.h"
#include "results/regroup.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using results::ResultStore;
using results::Row;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::SyntheticArm;
using tests::SyntheticRun;
using tests::TempFolder;

TEST_F(ReportTest, RowCostsOfTheRunAreShownWhenTheyAreThere) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("before the run")));
  store_.add_environment(
      id, "row_cost",
      R"({"context": 256, "rows": [{"rows": 1, "ratio": 1.0}, {"rows": 2, "ratio": 1.031},
          {"rows": 16, "ratio": 1.5}]})");
  EXPECT_THAT(to_text(build_report(store_, id)),
              HasSubstr("T(n)/T(1) before the run, context 256: 2 rows 1.03, 16 rows 1.50"));
  for (const char* broken : {"", "[]", "{\"rows\": 3}", "{\"rows\": [3, {\"rows\": \"2\"}]}"}) {
    store_.execute("UPDATE environment SET value = ? WHERE name = 'row_cost'",
                   {std::string(broken)});
    EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("before the run"))) << broken;
  }
}

TEST_F(ReportTest, CertificatesStandBesideTheArmsTheyHoldFor) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("shown lossless")));
  EXPECT_TRUE(nlohmann::json::parse(to_json(build_report(store_, id)))[0]["certificate"].is_null());
  results::ArmRecord arm = tests::arm_record(run_, run_.arms[2]);
  const std::string commit = build_report(store_, id).run.commit;
  const auto put = [&](const std::string& build, const char* outcome, const char* proven) {
    results::put_certificate(
        store_, {results::certificate_key(arm, build), "2026-01-02", arm.label, outcome, proven,
                 nlohmann::json{{"grades", nlohmann::json::object()}, {"shown", proven}}.dump()});
  };
  // Of another build: not shown.
  put(commit + "x", "holds", "greedy: identical");
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("shown lossless")));
  put(commit, "holds", "greedy: identical");
  const Report report = build_report(store_, id);
  for (const ReportRow& r : report.rows)
    EXPECT_EQ(r.arm.certificate.has_value(), r.arm.label == arm.label) << r.arm.label;
  for (const std::string& text : {to_text(report), to_markdown(report)}) {
    EXPECT_THAT(text, HasSubstr("shown lossless"));
    EXPECT_THAT(text, HasSubstr("greedy: identical"));
  }
  for (const nlohmann::json& row : nlohmann::json::parse(to_json(report))) {
    if (row["method"] == arm.label) {
      EXPECT_EQ(row["certificate"]["outcome"], "holds");
    }
  }
  EXPECT_THAT(to_csv(report), HasSubstr(",holds"));
  EXPECT_THAT(to_latex(report), HasSubstr(" & greedy: identical"));
  EXPECT_THAT(to_latex(report), HasSubstr("Shown lossless: by evalrun verify"));
  EXPECT_THAT(to_html(report, store_), HasSubstr("proven: greedy: identical"));
  // A report by category knows it, too.
  const auto parts = results::regrouped(store_, {results::Axis::kCategory});
  EXPECT_THAT(to_text(build_report(*parts, id)), HasSubstr("greedy: identical"));
  // A long one is wrapped where the table must be narrow.
  const char* long_one =
      "greedy: identical over 2,560 tokens; sampling T=1: decisions audited (2,113; would find "
      "0.0014)";
  put(commit, "holds", long_one);
  EXPECT_THAT(to_text(build_report(store_, id)), HasSubstr(long_one));
  EXPECT_THAT(render(document(build_report(store_, id)), Format::kText, {.width = 100}),
              Not(HasSubstr(long_one)));
  put(commit, "fails", "");
  EXPECT_THAT(to_text(build_report(store_, id)), HasSubstr("FAILS"));
  EXPECT_THAT(to_html(build_report(store_, id), store_), HasSubstr("fails verify"));
  EXPECT_THAT(to_latex(build_report(store_, id)), HasSubstr(" & FAILS"));
}

TEST_F(ReportTest, HeadingsSayHowManyOfTheOfficialPromptsWereMeasured) {
  const int64_t id = tests::fill(store_, run_);
  const std::string task = build_report(store_, id).rows.front().dataset;
  const std::string plain = to_text(build_report(store_, id));
  const auto n = plain.find(task + " (");
  ASSERT_NE(n, std::string::npos);
  EXPECT_THAT(plain, Not(HasSubstr("unverified")));
  store_.add_environment(id, "data." + task, R"({"official": 1319, "verification": "unverified"})");
  EXPECT_THAT(to_text(build_report(store_, id)), HasSubstr(" of 1319 prompts, unverified)"));
  for (const char* other : {R"({"official": 0, "verification": "official"})", "", "[1]",
                            R"({"official": "x", "verification": 3})"}) {
    store_.execute("UPDATE environment SET value = ? WHERE name = ?",
                   {std::string(other), "data." + task});
    EXPECT_EQ(to_text(build_report(store_, id)), plain) << other;
  }
}

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

// One answer of forty takes half of all time: 1 / (1/4 + 39 / 78^2) prompts of equal weight.
TEST_F(ReportTest, FewLongAnswersAreSaid) {
  run_.prompts_per_task = 40;
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                   int) {
    if (a.role == "method") g.turns[0].decode_ns = prompt == 7 ? 39'000'000 : 1'000'000;
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_NEAR(pld.speed.n_eff, 1 / (0.25 + 39.0 / (78 * 78)), 1e-9);
  const std::string text = to_text(r);
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "Prompts of equal weight, each on its own, that 40 prompts are worth "
                        "(n_eff): pld:k=4 3.9."));
  EXPECT_THAT(text, ::testing::HasSubstr("]* ")) << "fewer than 20 of equal weight";
  EXPECT_THAT(text, ::testing::HasSubstr("From 40 prompts that weigh as 3.9: indicative only."));
  run_.change = nullptr;
  run_.key = "even";
  run_.tokens = 400;  // and 4 more from prompt to prompt
  const std::string even = to_text(report());
  EXPECT_THAT(even, ::testing::Not(::testing::HasSubstr("n_eff")));
  EXPECT_THAT(even, ::testing::Not(::testing::HasSubstr("]*")));
}

// Forty prompts in eight groups of five, as translations of a problem, and in two categories.
TEST_F(ReportTest, GroupsAndKindsDecideTheIntervals) {
  run_.prompts_per_task = 40;
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                   int) {
    if (a.role == "method") g.turns[0].decode_ns *= 4 + prompt / 5;
  };
  const int64_t id = tests::fill(store_, run_);
  store_.execute(
      "UPDATE score SET value = (SELECT (prompt_id - 1) / 5 % 2 FROM generation WHERE id = "
      "generation_id)");
  const auto width = [&](const Report& r) {
    const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
    return std::log(pld.speed.interval->hi / pld.speed.interval->lo);
  };
  const Report alone = build_report(store_, id);
  EXPECT_GT(row(alone, "pld:k=4", "gsm8k").speed.n_eff, 25);
  store_.execute("UPDATE prompt SET group_name = (id - 1) / 5");
  const Report grouped = build_report(store_, id);
  const ReportRow& pld = row(grouped, "pld:k=4", "gsm8k");
  EXPECT_GT(width(grouped), 2 * width(alone));
  EXPECT_LT(pld.speed.n_eff, 8);
  EXPECT_LT(pld.acceptance.tau_n_eff, 8.001);
  const auto quality = [&](const Report& r) {
    const auto& i = row(r, "ar", "gsm8k").quality.at("exact@1").interval;
    return i->hi - i->lo;
  };
  EXPECT_GT(quality(grouped), 1.5 * quality(alone));
  EXPECT_THAT(to_text(grouped), ::testing::HasSubstr("that 40 prompts are worth (n_eff): "));
  store_.execute("UPDATE prompt SET group_name = '', category = (id - 1) / 20");
  const Report kinds = build_report(store_, id);
  EXPECT_LT(width(kinds), width(alone)) << "the difference of the categories is no chance";
  EXPECT_THAT(to_text(kinds), ::testing::HasSubstr("new prompts of the same kind (same-kind)"));
  const Report others = build_report(store_, id, {.scope = Scope::kNewKinds});
  EXPECT_GT(width(others), 5 * width(alone)) << "two clusters";
  EXPECT_THAT(to_text(others), ::testing::HasSubstr("new kinds of prompts (new-kinds)"));
  EXPECT_THAT(to_json(others), ::testing::HasSubstr("\"scope\": \"new-kinds\""));
  store_.execute("UPDATE prompt SET category = 'one'");
  const Report one = build_report(store_, id, {.scope = Scope::kNewKinds});
  EXPECT_FALSE(row(one, "pld:k=4", "gsm8k").speed.interval);
  const std::string text = to_text(one);
  EXPECT_THAT(text, ::testing::HasSubstr("No interval for new kinds: all prompts here are of one"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("nan")));
}

// The same ten problems in two data sets: all of them are ten, not twenty.
TEST_F(ReportTest, AProblemOfTwoDataSetsCountsOnceInTheirSum) {
  run_.tasks = {"humaneval", "humaneval_x"};
  run_.prompts_per_task = 10;
  const int64_t id = tests::fill(store_, run_);
  const auto n_eff = [&](const char* dataset) {
    return row(build_report(store_, id), "pld:k=4", dataset).speed.n_eff;
  };
  const double apart = n_eff("all"), alone = n_eff("humaneval_x");
  EXPECT_NEAR(apart, 2 * alone, 1e-9);
  store_.execute("UPDATE prompt SET group_name = substr(name, instr(name, '/') + 1)");
  EXPECT_NEAR(n_eff("all"), apart, 1e-9) << "groups of each data set";
  store_.execute("UPDATE prompt SET group_name = '/humaneval/' || group_name");
  EXPECT_NEAR(n_eff("all"), alone, 1e-9);
  EXPECT_NEAR(n_eff("humaneval_x"), alone, 1e-9);
}

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

// A hundred answers of 32 to 428 tokens; the speedup follows the length, the tokens, or neither.
TEST_F(ReportTest, WhyTheJobGainsAnotherFactorThanATypicalPrompt) {
  run_.prompts_per_task = 100;
  const auto said = [&](const std::string& key, const std::function<double(int)>& speedup) {
    run_.key = key;
    run_.change = [&](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                      int) {
      if (a.role == "method")
        g.turns[0].decode_ns = static_cast<int64_t>((32 + 4 * prompt) * 1e7 / speedup(prompt));
    };
    return to_text(report());
  };
  const std::string line = "(geometric mean) lie outside each other's interval: pld:k=4 ";
  const auto steady = [](int prompt) { return 2 + 0.01 * (prompt % 3); };
  EXPECT_THAT(said("steady", steady), ::testing::Not(::testing::HasSubstr("each other's")));
  EXPECT_THAT(said("worse", [](int prompt) { return prompt < 50 ? 2.6 : 2; }),
              ::testing::AllOf(::testing::HasSubstr(line),
                               ::testing::HasSubstr("(long answers gain less).")));
  EXPECT_THAT(said("better", [](int prompt) { return prompt < 50 ? 2 : 2.6; }),
              ::testing::AllOf(::testing::HasSubstr(line),
                               ::testing::HasSubstr("(long answers gain more).")));
  EXPECT_THAT(said("wide", [](int prompt) { return prompt % 2 == 0 ? 1 : 30; }),
              ::testing::AllOf(::testing::HasSubstr(line),
                               ::testing::HasSubstr("(slow prompts take more of the time).")));
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

TEST_F(ReportTest, AcceptanceByDepthByHand) {
  run_.prompts_per_task = 1;
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  // 13 steps of depth 4: three rounds of 3, 1, 0, 2 and one step cut after 2 accepted tokens.
  // Depth 1: all 13 tested, 3 x (3, 1, 2) + 1 accepted. Depth 2: 10 tested, 3 x (3, 2) + 1.
  // Depth 3: 3 x (3, 2) tested, the cut step is unknown there. Depth 4: 3 tested, none accepted.
  ASSERT_EQ(pld.acceptance.by_depth.size(), 4u);
  const int64_t tested[] = {13, 10, 6, 3}, accepted[] = {10, 7, 3, 0};
  double joint = 0;
  for (size_t d = 0; d < 4; ++d) {
    EXPECT_EQ(pld.acceptance.by_depth[d].tested, tested[d]) << d;
    EXPECT_EQ(pld.acceptance.by_depth[d].accepted, accepted[d]) << d;
    joint += pld.acceptance.by_depth[d].joint;
  }
  EXPECT_NEAR(joint, *pld.acceptance.accepted_per_step, 1e-12);  // sum of P(at least d accepted)
}

// A tree of a and b after the root, c after b. Four rounds of steps that accept a, which is a leaf;
// b and not c; b and c; nothing. A cut after a ends the answer.
TEST_F(ReportTest, ALeafOfATreeRefusesNothing) {
  run_.prompts_per_task = 1;
  run_.tokens = 34;
  const auto fill = [&](const std::string& key, bool with_nodes) {
    run_.key = key;
    run_.change = [with_nodes](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int,
                               int) {
      if (a.role != "method") return;
      results::TurnRecord& turn = g.turns[0];
      turn.steps.clear(), turn.nodes.clear();
      for (int k = 0; k < 17; ++k) {
        const int walked[] = {1, 1, 2, 0};
        results::StepRecord s;
        s.drafted = 3, s.drafted_depth = 2, s.rows = 4, s.accepted = walked[k % 4];
        s.emitted = s.accepted + (k < 16 ? 1 : 0);
        turn.steps.push_back(s);
      }
      if (with_nodes)
        turn.nodes = {{.depth = 1, .rank = 0, .tested = 17, .accepted = 5},
                      {.depth = 1, .rank = 1, .tested = 17, .accepted = 8},
                      {.depth = 2, .rank = 0, .tested = 8, .accepted = 4}};
    };
    return report();
  };
  const auto depth = [&](const Report& r, size_t d) {
    return row(r, "pld:k=4", "gsm8k").acceptance.by_depth.at(d - 1);
  };
  const Report r = fill("nodes", true);
  ASSERT_EQ(row(r, "pld:k=4", "gsm8k").acceptance.by_depth.size(), 2u);
  EXPECT_EQ(depth(r, 1).tested, 17);
  EXPECT_EQ(depth(r, 1).accepted, 13);
  EXPECT_EQ(depth(r, 2).tested, 8) << "c after b, by eight steps";
  EXPECT_EQ(depth(r, 2).accepted, 4);
  EXPECT_DOUBLE_EQ(depth(r, 2).conditional, 0.5);
  EXPECT_DOUBLE_EQ(depth(r, 2).joint, 4.0 / 17);
  const Report old = fill("none", false);
  EXPECT_EQ(depth(old, 2).tested, 12) << "the longest path counts";
}

// Lookahead and Self-Draft may accept one token less than they draft: the last one is never asked.
TEST_F(ReportTest, ADepthThatNoStepWasAskedAtIsNone) {
  run_.prompts_per_task = 1;
  run_.arms[2].accepted = {3};
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.role == "method")
      std::erase_if(g.turns[0].nodes, [](const auto& node) { return node.depth == 4; });
  };
  const Report r = report();
  const auto& depths = row(r, "pld:k=4", "gsm8k").acceptance.by_depth;
  ASSERT_EQ(depths.size(), 3u);
  EXPECT_EQ(depths[2].tested, 8);
  EXPECT_EQ(depths[2].conditional, 1);
}

TEST_F(ReportTest, NodesArePooledByTheirPlace) {
  run_.tasks = {"gsm8k", "chat"};
  run_.repeats = 2;
  const Report r = report();
  const ReportRow& part = row(r, "pld:k=4", "gsm8k");
  const ReportRow& all = row(r, "pld:k=4", "all");
  ASSERT_EQ(part.acceptance.by_node.size(), 4u);
  ASSERT_EQ(all.acceptance.by_node.size(), 4u);
  for (size_t d = 0; d < 4; ++d) {
    const NodeAcceptance& n = all.acceptance.by_node[d];
    EXPECT_EQ(n.depth, static_cast<int64_t>(d) + 1);
    EXPECT_EQ(n.rank, 0);
    EXPECT_EQ(n.tested, 2 * part.acceptance.by_node[d].tested);
    // A chain's nodes are its depths; only the cut of a last step is seen by the nodes alone.
    EXPECT_GE(n.tested, all.acceptance.by_depth[d].tested);
    EXPECT_LE(n.tested, all.acceptance.by_depth[d].tested + 2 * 2 * 4);
  }
  EXPECT_TRUE(row(r, "ar", "gsm8k").acceptance.by_node.empty());
  const auto written = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(written[0]["acceptance_by_node"], nlohmann::json::array());
  EXPECT_EQ(written[2]["acceptance_by_node"][0]["tested"], part.acceptance.by_node[0].tested);
  EXPECT_THAT(to_csv(r), Not(HasSubstr("acceptance_by_node")));
}

TEST_F(ReportTest, AMethodThatDraftsNothingShowsIt) {
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int, int, int) {
    if (a.role != "method") return;
    int kept = 0;
    for (auto& s : g.turns[0].steps) {  // a draft in every eighth step, all of it good
      if (kept++ % 8 == 0) continue;
      s.drafted = s.drafted_depth = 0, s.rows = 1;
    }
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_GT(*pld.acceptance.no_draft, 0.8);
  EXPECT_DOUBLE_EQ(*pld.acceptance.no_draft, pld.acceptance.undrafted / pld.acceptance.steps);
  EXPECT_FALSE(row(r, "ar", "gsm8k").acceptance.no_draft.has_value());
  EXPECT_DOUBLE_EQ(*row(r, "ar", "gsm8k").acceptance.rows_per_step, 1);
  EXPECT_THAT(to_text(build_report(store_, 1, {.why = false, .columns = {"no_draft"}})),
              HasSubstr(fmt::format("{:.1f} %", 100 * *pld.acceptance.no_draft)));
}

TEST_F(ReportTest, IdentitiesWithoutACut) {
  run_.tokens = 41;
  run_.prompts_per_task = 1;  // 40 = 4 whole rounds: every step ends with a token of the target
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_DOUBLE_EQ(*pld.acceptance.tau, 1 + *pld.acceptance.accepted_per_step);
  EXPECT_NEAR(*pld.acceptance.alpha_share, (*pld.acceptance.tau - 1) / *pld.acceptance.tau, 1e-15);
  EXPECT_NEAR(*pld.acceptance.accepted_per_step,
              *pld.acceptance.alpha_share / (1 - *pld.acceptance.alpha_share), 1e-14);
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

TEST_F(ReportTest, TheMedianRepeatCounts) {
  run_.repeats = 3;
  run_.change = [](GenerationRecord& g, const SyntheticArm&, int, int repeat, int) {
    if (repeat == 1) g.turns[0].decode_ns *= 50;  // somebody else used the machine
  };
  const ReportRow& pld = row(report(), "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.counts.repeats, 3);
  EXPECT_DOUBLE_EQ(*pld.speed.speedup, 152.0 * 10 / (60 * 12));
  EXPECT_EQ(pld.acceptance.steps, 60);  // of one repeat, not of three
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

TEST_F(ReportTest, LossyArmsStandApart) {
  SyntheticArm lossy = run_.arms[2];
  lossy.label = "typical";
  lossy.lossless = "none";
  run_.arms.insert(run_.arms.begin() + 1, lossy);
  const Report r = report();
  EXPECT_EQ(r.rows.back().arm.label, "typical");
  const std::string text = to_text(r);
  EXPECT_LT(text.find("pld:k=4"), text.find("Not lossless"));
  EXPECT_LT(text.find("Not lossless"), text.find("typical"));
}

TEST_F(ReportTest, SamplesHaveMeanAndDeviation) {
  run_.samples = 3;
  for (SyntheticArm& a : run_.arms) a.temperature = 0.7;
  // Sample k of the method takes (10 + k) / 10 of the time.
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int, int, int sample) {
    if (a.role == "method") g.turns[0].decode_ns = g.turns[0].decode_ns * (10 + sample) / 10;
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.counts.samples, 3);
  EXPECT_EQ(pld.counts.prompts, 4);  // samples are not more prompts
  const double one = 152.0 * 10 / (60 * 12), s[] = {one, one / 1.1, one / 1.2};
  EXPECT_NEAR(*pld.speed.sample_mean, (s[0] + s[1] + s[2]) / 3, 1e-9);
  EXPECT_NEAR(*pld.speed.sample_sd, base::sample_sd(s), 1e-9);
  EXPECT_NEAR(*pld.speed.speedup, one / 1.1, 1e-9);  // pooled time is 3.3 of 3
  ASSERT_TRUE(pld.quality.at("exact@1").sd.has_value());
  EXPECT_EQ(*pld.quality.at("exact@1").sd, 0);
  EXPECT_THAT(to_markdown(r), HasSubstr("over samples"));
  EXPECT_THAT(to_markdown(r), HasSubstr("temperature 0.7"));
}

TEST_F(ReportTest, TwoTurnsEachLoseTheirFirstToken) {
  run_.prompts_per_task = 1;
  run_.change = [](GenerationRecord& g, const SyntheticArm&, int, int, int) {
    g.turns.push_back(g.turns[0]);
    g.texts.push_back("");
  };
  const Report r = report();
  EXPECT_EQ(row(r, "ar", "gsm8k").acceptance.emitted, 64);  // 2 x (33 - 1)
  EXPECT_EQ(row(r, "ar", "gsm8k").acceptance.tau, 1.0);
  EXPECT_DOUBLE_EQ(*row(r, "ar", "gsm8k").speed.tok_s, 100);
}

TEST_F(ReportTest, OneIsNoPlural) {
  run_.threads = 1, run_.prompts_per_task = 1;
  EXPECT_THAT(to_text(report()),
              ::testing::AllOf(HasSubstr(" cpu, 1 thread · 1 prompt · "),
                               HasSubstr(" · 1 repeat · "), HasSubstr("gsm8k (1 prompt)")));
}

TEST_F(ReportTest, WithoutABaselineArmThereAreCountersButNoSpeedup) {
  run_.arms.erase(run_.arms.begin(), run_.arms.begin() + 2);
  const Report r = report();
  ASSERT_EQ(r.rows.size(), 1u);
  EXPECT_FALSE(r.rows[0].speed.speedup.has_value());
  EXPECT_DOUBLE_EQ(*r.rows[0].acceptance.tau, 152.0 / 60);
  EXPECT_FALSE(r.rows[0].same_tokens.share.has_value());
}

TEST_F(ReportTest, TheGeometricMeanIsNamed) {
  const Report r = report({.estimator = Estimator::kGeo});
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.speed.speedup, pld.speed.geo);
  EXPECT_NE(*pld.speed.speedup, 152.0 * 10 / (60 * 12));
  EXPECT_THAT(to_markdown(r), HasSubstr("geometric mean over prompts"));
}

TEST_F(ReportTest, TheLegacyEstimatorIsAskedForAndNamed) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("Spec-Bench")));
  // Tokens per prompt over steps of 12 ms each, against one token per 10 ms everywhere.
  const Report decoding = build_report(store_, id, {.estimator = Estimator::kLegacyDecode});
  EXPECT_NEAR(*row(decoding, "pld:k=4", "gsm8k").speed.speedup,
              (32.0 / 13 + 36.0 / 14 + 40.0 / 16 + 44.0 / 17) / 4 * 10 / 12, 1e-9);
  EXPECT_THAT(to_text(decoding), HasSubstr("of decoding alone"));
  EXPECT_THAT(to_json(decoding), HasSubstr("\"estimator\": \"legacy-decode\""));
  const Report r = build_report(store_, id, {.estimator = Estimator::kLegacy});
  for (const std::string& text : {to_text(r), to_markdown(r), to_latex(r), to_html(r, store_)}) {
    EXPECT_THAT(text, HasSubstr("speedup as Spec-Bench/EAGLE"));
    EXPECT_THAT(text, HasSubstr("mean of speeds over mean of speeds"));
  }
  EXPECT_THAT(to_json(r), HasSubstr("\"estimator\": \"legacy\""));
}

TEST_F(ReportTest, ABootstrapIsNamedAndAlwaysTheSame) {
  run_.prompts_per_task = 40;
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
    if (a.role == "method") g.turns[0].decode_ns += 1'000'000 * (prompt * 7 % 11);
  };
  const int64_t id = tests::fill(store_, run_);
  const Report t = build_report(store_, id);
  for (const Estimator e :
       {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy, Estimator::kLegacyDecode}) {
    const ReportOptions options = {.estimator = e, .interval = IntervalKind::kBootstrap};
    const Report r = build_report(store_, id, options);
    EXPECT_EQ(to_json(r), to_json(build_report(store_, id, options)));
    const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
    ASSERT_TRUE(pld.speed.interval && pld.acceptance.tau_interval);
    EXPECT_LT(pld.speed.interval->lo, *pld.speed.speedup);
    EXPECT_GT(pld.speed.interval->hi, *pld.speed.speedup);
    const Report closed = build_report(store_, id, {.estimator = e});
    EXPECT_EQ(row(closed, "pld:k=4", "gsm8k").speed.speedup, pld.speed.speedup);
    EXPECT_NE(row(closed, "pld:k=4", "gsm8k").speed.interval->lo, pld.speed.interval->lo);
    EXPECT_NE(pld.acceptance.tau_interval->lo,
              row(t, "pld:k=4", "gsm8k").acceptance.tau_interval->lo);
    EXPECT_THAT(to_json(r), HasSubstr("\"interval\": \"bootstrap\""));
    for (const std::string& text : {to_text(r), to_markdown(r), to_latex(r), to_html(r, store_)}) {
      EXPECT_THAT(text, HasSubstr("paired bootstrap over prompts, 10,000 resamples"));
      EXPECT_THAT(text, HasSubstr("same kind"));
    }
  }
  EXPECT_THAT(to_json(t), HasSubstr("\"interval\": \"t\""));
  EXPECT_THAT(to_text(t), HasSubstr("(same-kind), Student's t over prompts"));
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
