// What intervals of a report rest on: prompts of equal weight, groups, kinds, resamples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reports/figures/report.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using ::testing::HasSubstr;
using tests::SyntheticArm;

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

}  // namespace
}  // namespace evalrun::reports
