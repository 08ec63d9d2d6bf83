// Speedups of a report: estimators, repeats, samples, turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/base/stats.h"
#include "reports/figures/report.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::SyntheticArm;

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

TEST_F(ReportTest, TheMedianRepeatCounts) {
  run_.repeats = 3;
  run_.change = [](GenerationRecord& g, const SyntheticArm&, int, int repeat, int) {
    if (repeat == 1) g.turns[0].decode_ns *= 50;  // somebody else used the machine
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.counts.repeats, 3);
  EXPECT_DOUBLE_EQ(*pld.speed.speedup, 152.0 * 10 / (60 * 12));
  EXPECT_EQ(pld.acceptance.steps, 60);  // of one repeat, not of three
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

}  // namespace
}  // namespace evalrun::reports
