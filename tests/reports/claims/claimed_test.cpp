// Published figures beside measured ones: which rows meet, in which convention, with which remarks.
// The synthetic run: pld on gsm8k has speedup 2.11, tau 152/60, alpha_share 93/152 (report_test).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "reports/claims/published_vs_measured.h"
#include "tests/reports/claims/claims_fixture.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

std::string with_claims(const PublishedVsMeasured& claimed, const Report& report, Format format) {
  Document d;
  add_claims(claimed, report, d);
  return render(d, format);
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ClaimedTest : public ReportTest {
 protected:
  std::vector<PublishedFigure> figures(std::initializer_list<const char*> lines) {
    return compare_with_claims(report(), claims_of(lines)).figures;
  }
  // The only figure for pld, with metric, value, unit given.
  PublishedFigure one(const std::string& metric_and_value) {
    const std::string line =
        "q,Table 1,llama-7b,gsm8k,,pld,greedy," + metric_and_value + ",,,A100,";
    const auto found = figures({line.c_str()});
    if (found.size() != 1) throw std::runtime_error(metric_and_value);
    run_.key += "+";  // the next report of this test is of a run of its own
    return found[0];
  }
};

TEST_F(ClaimedTest, SpeedupsInEveryForm) {
  const PublishedFigure speed = one("speedup,2.40");
  EXPECT_EQ(speed.metric, "speedup");
  EXPECT_NEAR(speed.measured, 1.52 / 0.72, 1e-9);
  ASSERT_TRUE(speed.interval.has_value());
  EXPECT_EQ(speed.position(), "above");
  EXPECT_EQ(one("speedup,1.5").position(), "below");
  EXPECT_EQ(one("speedup,2.11").position(), "within");
  const PublishedFigure gain = one("throughput_gain,80");
  EXPECT_DOUBLE_EQ(gain.published, 1.8);
  EXPECT_DOUBLE_EQ(gain.rounding, 0.005);
  EXPECT_EQ(gain.conversion, "80 % gain");
  EXPECT_DOUBLE_EQ(one("throughput_ratio,2.0").published, 2);
}

TEST_F(ClaimedTest, TokensPerStepAreComparedWithTheBonusToken) {
  const PublishedFigure with = one("tau_with_bonus,2.50");
  EXPECT_EQ(with.metric, "tau(+bonus)");
  EXPECT_DOUBLE_EQ(with.published, 2.5);
  EXPECT_EQ(with.conversion, "");
  EXPECT_NEAR(with.measured, 152.0 / 60, 1e-9);
  EXPECT_EQ(with.position(), "") << "the report has no interval for it";
  const PublishedFigure without = one("tau_without_bonus,1.50");
  EXPECT_EQ(without.metric, "tau(+bonus)");
  EXPECT_DOUBLE_EQ(without.published, 2.5);
  EXPECT_EQ(without.conversion, "1.50 + the bonus token");
  const PublishedFigure share = one("alpha_share,61.2");
  EXPECT_DOUBLE_EQ(share.published, 0.612);
  EXPECT_NEAR(share.measured, 93.0 / 152, 1e-9);
  EXPECT_EQ(one("decoding_efficiency,2.4").metric, "DE");
}

TEST_F(ClaimedTest, OnlyTheSameMethodAndDataMeet) {
  EXPECT_THAT(figures({"q,t,,gsm8k,,lookahead,,speedup,2,,,,", "q,t,,mbpp,,pld,,speedup,2,,,,",
                       "q,t,,gsm8k+mbpp,,pld,,speedup,2,,,,", "q,t,,gsm8k,hard,pld,,speedup,2,,,,",
                       "q,t,,gsm8k,,pld,stat=max,speedup,2,,,,", "q,t,,gsm8k,,pld,,speedup,,,,,",
                       "q,t,,gsm8k,,pld,,learning_rate,2,,,,", "q,t,,gsm8k,,ar,,speedup,1,,,,"}),
              IsEmpty());
  EXPECT_EQ(published_names("eagle"), std::vector<std::string>{"eagle1"});
  EXPECT_EQ(published_names("recycling"), std::vector<std::string>{"token_recycling"});
  EXPECT_EQ(published_names("suffix"), std::vector<std::string>{"suffix_decoding"});
  EXPECT_THAT(published_names("gated_lora"), IsEmpty());
  EXPECT_THAT(published_names("pass"), IsEmpty());
}

TEST_F(ClaimedTest, PartsOfADataSetMeetCategories) {
  run_.tasks = {"humaneval_x[python]:prompt=chat",
                "mt_bench / coding",
                "mt_bench",
                "gsm_100",
                "humaneval_x[go,cpp]",
                "cip_standin"};
  const auto found = figures(
      {"q,t,,humaneval_x,python,pld,,speedup,2,,,,", "q,t,,mt_bench,coding,pld,,speedup,3,,,,",
       "q,t,,mt_bench,overall,pld,,speedup,4,,,,", "q,t,,gsm8k_100,,pld,,speedup,5,,,,",
       "q,t,,humaneval_x,go,pld,,speedup,6,,,,", "q,t,,cip,,pld,,speedup,7,,,,"});
  std::vector<double> published;
  for (const PublishedFigure& f : found) published.push_back(f.published);
  EXPECT_THAT(published, ElementsAre(2, 3, 4, 5)) << "a stand-in is not the data set";
}

TEST_F(ClaimedTest, GreedyIsNotComparedWithSampling) {
  const PublishedVsMeasured claimed = compare_with_claims(
      report(),
      claims_of({"q,t,,gsm8k,,pld,temperature=1,speedup,2,,,,",
                 "q,t,,gsm8k,,pld,greedy,speedup,3,,,,", "q,t,,gsm8k,,pld,,speedup,4,,,,"}));
  ASSERT_EQ(claimed.figures.size(), 2u) << "greedy, and not stated";
  EXPECT_EQ(claimed.figures[0].published, 3);
  EXPECT_EQ(claimed.other_decoding, 1);
}

TEST_F(ClaimedTest, ReprintsAreOneRow) {
  const auto found = figures({"q,Table 1,m,gsm8k,,pld,greedy,speedup,2.1,,,A100,",
                              "q,Table 4,m,gsm8k,,pld,greedy,speedup,2.1,,,A100,",
                              "q,Table 5,m,gsm8k,,pld,greedy,speedup,2.3,,,A100,"});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0].places, ElementsAre("Table 1", "Table 4"));
}

TEST_F(ClaimedTest, QualityOfTheSameName) {
  Report r;
  ReportRow row;
  row.dataset = "humaneval_x[python]";
  row.arm.method = row.arm.label = "space";
  Quality pass, rouge;
  pass.version = "humaneval-x";
  pass.n = rouge.n = 10;
  pass.value = 0.3;
  pass.pass_at = {{1, 0.3}, {10, 0.5}};
  pass.interval = base::Interval{0.1, 0.5};
  rouge.value = 0.2;
  row.quality = {{"pass@humaneval-x", pass},
                 {"rougeL@pltrdy-1.0.1", rouge},
                 {"rougeL-vs-baseline@pltrdy-1.0.1", rouge}};
  r.rows = {row};
  const auto found =
      compare_with_claims(r, claims_of({"q,t,,humaneval_x,python,space,greedy,pass_at_10,18.9,,,,",
                                        "q,t,,humaneval_x,python,space,,pass_at_10,18.9,,,,",
                                        "q,t,,humaneval_x,python,space,greedy,rouge_l,16.0,,,,"}))
          .figures;
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].metric, "pass@1 (humaneval-x)") << "greedy answers give nothing else";
  EXPECT_DOUBLE_EQ(found[0].published, 0.189);
  EXPECT_EQ(found[0].conversion, "18.9 %, greedy pass@10");
  EXPECT_EQ(found[0].position(), "within");
  EXPECT_EQ(found[1].metric, "pass@10 (humaneval-x)");
  EXPECT_DOUBLE_EQ(found[1].measured, 0.5);
  EXPECT_EQ(found[1].position(), "");
  EXPECT_EQ(found[2].metric, "rougeL@pltrdy-1.0.1");
}

TEST_F(ClaimedTest, TunedTargetsAreComparedToo) {
  run_.arms = tests::arms_with_a_tuned_target();
  const auto found = figures({"space,Table 1,m,gsm8k,,space,greedy,speedup,2.7,,,,"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(found[0].measured, 152 * 0.008 / (60 * 0.012), 1e-9);
}

TEST_F(ClaimedTest, TextSaysWhatIsDoubtful) {
  const Report r = report();
  const PublishedVsMeasured claimed = compare_with_claims(
      r, claims_of({"q,Table 1,llama_7b,gsm8k,,pld,greedy,speedup,3.61,,,A100,caveat=kv_cache; x",
                    "q,Table 2,llama_7b,gsm8k,,pld,greedy,tau_without_bonus,2.50,,,A100,"}));
  const std::string text = with_claims(claimed, r, Format::kText);
  EXPECT_THAT(text, HasSubstr("gsm8k, claimed against measured\n"));
  EXPECT_THAT(text, HasSubstr("above; flagged: speedup_tau; caveat=kv_cache"));
  EXPECT_THAT(text, HasSubstr("3.500 (2.50 + the bonus token)"));
  EXPECT_THAT(text, HasSubstr("q: Table 1"));
  EXPECT_THAT(text, HasSubstr("A100"));
  EXPECT_THAT(with_claims(claimed, r, Format::kMarkdown), HasSubstr("llama\\_7b"));
  EXPECT_THAT(to_json(claimed, r), ::testing::StartsWith("[\n  {\n    \""));
  const auto rows = nlohmann::json::parse(to_json(claimed, r));
  ASSERT_EQ(rows.size(), r.rows.size());
  EXPECT_THAT(rows[0]["claims"], IsEmpty());
  ASSERT_EQ(rows[2]["claims"].size(), 2u);
  EXPECT_EQ(rows[2]["claims"][0]["position"], "above");
  EXPECT_EQ(rows[2]["claims"][0]["findings"][0], "speedup_tau");
  EXPECT_EQ(rows[2]["claims"][1]["published"], 3.5);
  EXPECT_EQ(rows[2]["claims"][1]["position"], nullptr);
}

TEST_F(ClaimedTest, NothingToCompareIsSaid) {
  const Report r = report();
  const std::string text = with_claims(compare_with_claims(r, claims_of({})), r, Format::kText);
  EXPECT_THAT(text, HasSubstr("test.csv has no published figure"));
  EXPECT_THAT(text, Not(HasSubstr("claimed against measured\n")));
}

}  // namespace
}  // namespace evalrun::reports
