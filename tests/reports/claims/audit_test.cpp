// The rules of the audit: each finds its planted fault and leaves sound tables alone.
#include "reports/claims/audit.h"

#include <gmock/gmock.h>

#include <set>

#include "reports/claims/csv.h"
#include "tests/reports/claims/claims_fixture.h"
#include "tests/reports/rendered.h"

namespace evalrun::reports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> flagged(const Claims& claims) {
  std::vector<std::string> out;
  for (const Finding& f : audit_claims(claims).findings)
    for (const Claim& c : f.flagged) out.push_back(fmt::format("{} {}", f.rule, c.line));
  return out;
}

// Comparisons that a rule made.
int64_t compared(const Claims& claims, const std::string& rule) {
  int64_t n = 0;
  for (const PaperAudit& p : audit_claims(claims).papers)
    if (const auto found = p.comparisons.find(rule); found != p.comparisons.end())
      n += found->second;
  return n;
}

// Falcon (arXiv:2412.12639), Tables 2 and 3, MT-Bench, Vicuna 7B: tau leaves the bonus token out
// but in the row of EAGLE, which repeats EAGLE's own figure.
TEST(Audit, FindsTheBonusTokenInFalconsTable) {
  const Claims claims = claims_of({
      "falcon,Table 2,vicuna-7b,mt_bench,overall,eagle1,greedy,alpha_share,74.59,,percent,H800,",
      "falcon,Table "
      "2,vicuna-7b,mt_bench,overall,falcon,k=2;greedy,alpha_share,77.64,,percent,H800,",
      "falcon,Table 2,vicuna-7b,mt_bench,overall,medusa,greedy,alpha_share,60.53,,percent,H800,",
      "falcon,Table 3,vicuna-7b,mt_bench,overall,eagle1,greedy,tau_without_bonus,3.94,,,H800,",
      "falcon,Table 3,vicuna-7b,mt_bench,overall,falcon,k=2;greedy,tau_without_bonus,3.34,,,H800,",
      "falcon,Table 3,vicuna-7b,mt_bench,overall,medusa,greedy,tau_without_bonus,1.51,,,H800,",
  });
  EXPECT_EQ(compared(claims, "alpha_tau"), 3);
  const Audit audit = audit_claims(claims);
  ASSERT_EQ(audit.findings.size(), 1u);
  const Finding& f = audit.findings[0];
  EXPECT_EQ(f.rule, "alpha_tau");
  EXPECT_EQ(f.flagged[0].line, 5u);
  EXPECT_THAT(f.against, ElementsAre(2u));
  EXPECT_NEAR(*f.implied, 0.7459 / (1 - 0.7459), 1e-9);
  EXPECT_THAT(f.text, HasSubstr("implies 2.94 accepted tokens per step, 3.94 is printed"));
  EXPECT_THAT(f.text, HasSubstr("the bonus token seems counted"));
  EXPECT_EQ(audit.papers[0].checked, 6);
  EXPECT_EQ(audit.papers[0].flagged, 1);
}

TEST(Audit, AlphaAndTauInEveryConvention) {
  // A = 3: alpha 75 %, 4 tokens per step.
  EXPECT_THAT(
      flagged(claims_of({"p,t,,d,,m,,alpha_share,75.0,,,,", "p,t,,d,,m,,tau_with_bonus,4.00,,,,"})),
      IsEmpty());
  const Claims missing =
      claims_of({"p,t,,d,,m,,alpha_share,75.0,,,,", "p,t,,d,,m,,decoding_efficiency,3.00,,,,"});
  EXPECT_THAT(flagged(missing), ElementsAre("alpha_tau 3"));
  EXPECT_THAT(audit_claims(missing).findings[0].text, HasSubstr("seems not counted"));
  EXPECT_NEAR(*audit_claims(missing).findings[0].implied, 4, 1e-9);
  const Claims neither =
      claims_of({"p,t,,d,,m,,alpha_share,75.0,,,,", "p,t,,d,,m,,tau_without_bonus,2.50,,,,"});
  EXPECT_THAT(audit_claims(neither).findings[0].text, HasSubstr("do not fit"));
}

TEST(Audit, RoundingIsNoFinding) {
  // 2.6 may be 2.65: alpha 72.6 %, within a point of 73.5; 2.60 may not.
  EXPECT_THAT(flagged(claims_of(
                  {"p,t,,d,,m,,alpha_share,73.5,,,,", "p,t,,d,,m,,tau_without_bonus,2.6,,,,"})),
              IsEmpty());
  EXPECT_THAT(flagged(claims_of(
                  {"p,t,,d,,m,,alpha_share,73.5,,,,", "p,t,,d,,m,,tau_without_bonus,2.60,,,,"})),
              ElementsAre("alpha_tau 3"));
}

TEST(Audit, TauInTwoConventions) {
  EXPECT_THAT(flagged(claims_of(
                  {"p,t,,d,,m,,tau_with_bonus,3.1,,,,", "p,t,,d,,m,,tau_without_bonus,2.1,,,,"})),
              IsEmpty());
  EXPECT_THAT(flagged(claims_of(
                  {"p,t,,d,,m,,tau_with_bonus,3.1,,,,", "p,t,,d,,m,,decoding_efficiency,2.1,,,,"})),
              ElementsAre("tau_conventions 3"));
  // 5.00 tokens per step leave 2 % of themselves and both roundings: 0.11 beside 4.00.
  EXPECT_THAT(flagged(claims_of(
                  {"p,t,,d,,m,,tau_with_bonus,5.00,,,,", "p,t,,d,,m,,tau_without_bonus,4.10,,,,"})),
              IsEmpty());
  EXPECT_THAT(flagged(claims_of(
                  {"p,t,,d,,m,,tau_with_bonus,5.00,,,,", "p,t,,d,,m,,tau_without_bonus,4.12,,,,"})),
              ElementsAre("tau_conventions 3"));
}

TEST(Audit, SpeedupIsAtMostTokensPerStep) {
  EXPECT_THAT(
      flagged(claims_of({"p,t,,d,,m,,speedup,3.61,,,,", "p,t,,d,,m,,tau_with_bonus,3.58,,,,"})),
      ElementsAre("speedup_tau 2"));
  EXPECT_THAT(
      flagged(claims_of({"p,t,,d,,m,,speedup,3.59,,,,", "p,t,,d,,m,,tau_with_bonus,3.58,,,,"})),
      IsEmpty())
      << "rounding";
  EXPECT_THAT(
      flagged(claims_of({"p,t,,d,,m,,speedup,3.1,,,,", "p,t,,d,,m,,tau_without_bonus,2.5,,,,"})),
      IsEmpty())
      << "the bonus token counts as a token of the step";
  EXPECT_THAT(flagged(claims_of({"p,t,,d,,m,,throughput_gain,140,,,,",
                                 "p,t,,d,,m,,decoding_efficiency,2.3,,,,"})),
              ElementsAre("speedup_tau 2"));
}

TEST(Audit, OnlyFiguresOfOneMeasurementMeet) {
  // Other model, other configuration, an end of a range, another paper.
  const Claims claims =
      claims_of({"p,t,a,d,,m,,tau_with_bonus,2.0,,,,", "p,t,b,d,,m,,speedup,3.0,,,,",
                 "p,t,a,d,,m,k=2,speedup,3.0,,,,", "p,t,a,d,,m,stat=max,speedup,3.0,,,,",
                 "q,t,a,d,,m,,speedup,3.0,,,,"});
  EXPECT_EQ(compared(claims, "speedup_tau"), 0);
  // Another place of the paper serves while all such places agree.
  EXPECT_THAT(flagged(claims_of({"p,Table 1,,d,,m,,speedup,3.0,,,,",
                                 "p,Table 2,,d,,m,,tau_with_bonus,2.0,,,,",
                                 "p,Table 3,,d,,m,,tau_with_bonus,2.0,,,,"})),
              ElementsAre("speedup_tau 2"));
  EXPECT_EQ(compared(claims_of({"p,Table 1,,d,,m,,speedup,3.0,,,,",
                                "p,Table 2,,d,,m,,tau_with_bonus,2.0,,,,",
                                "p,Table 3,,d,,m,,tau_with_bonus,4.0,,,,"}),
                     "speedup_tau"),
            0);
}

// Medusa-2 (arXiv:2401.10774), Vicuna 7B: 3.47 tokens per step, overhead 1.22, speedup 2.83.
TEST(Audit, StepOverhead) {
  EXPECT_THAT(
      flagged(claims_of({"medusa,Table 1,vicuna-7b,mt_bench,,medusa2,,tau_with_bonus,3.47,,,,",
                         "medusa,Table 1,vicuna-7b,mt_bench,,medusa2,,step_overhead,1.22,,,,",
                         "medusa,Table 1,vicuna-7b,mt_bench,,medusa2,,speedup,2.83,,,,"})),
      IsEmpty());
  EXPECT_THAT(
      flagged(claims_of({"p,t,,d,,m,,tau_with_bonus,3.47,,,,", "p,t,,d,,m,,step_overhead,1.22,,,,",
                         "p,t,,d,,m,,speedup,2.63,,,,"})),
      ElementsAre("step_overhead 4"));
}

// Self-Draft, Table 2, Llama 7B, GSM-100: 49.0 to 88.2 tokens per second.
TEST(Audit, Throughput) {
  const char* base = "p,Table 2,llama-7b,gsm8k_100,,ar,greedy,throughput,49.0,,,,";
  const char* own = "p,Table 2,llama-7b,gsm8k_100,,self_draft,N=6;greedy,throughput,88.2,,,,";
  EXPECT_THAT(flagged(claims_of(
                  {base, own,
                   "p,Table 2,llama-7b,gsm8k_100,,self_draft,N=6;greedy,throughput_gain,80,,,,"})),
              IsEmpty());
  EXPECT_THAT(
      flagged(claims_of(
          {base, own, "p,Table 2,llama-7b,gsm8k_100,,self_draft,N=6;greedy,speedup,1.49,,,,"})),
      ElementsAre("throughput 4"));
  EXPECT_THAT(
      flagged(claims_of({"p,t,,,,ar,,time_per_token,28.0,,,,", "p,t,,,,m,,time_per_token,11.5,,,,",
                         "p,t,,,,m,,speedup,2.36,,,,"})),
      ElementsAre("throughput 4"));
}

TEST(Audit, Bounds) {
  const auto one = [](const std::string& row) {
    return flagged(claims_of({(row + ",,,,").c_str()}));
  };
  EXPECT_THAT(one("p,t,,d,,space,k=5,tau_with_bonus,6.0"), IsEmpty());
  EXPECT_THAT(one("p,t,,d,,space,k=5,tau_with_bonus,6.2"), ElementsAre("bounds 2"));
  EXPECT_THAT(one("p,t,,d,,bita,k=5;masks=3,speedup,4.1"), ElementsAre("bounds 2"));
  EXPECT_THAT(one("p,t,,d,,falcon,k=2;forwards=4,tau_without_bonus,8.0"), IsEmpty());
  EXPECT_THAT(one("p,t,,d,,falcon,k=2;forwards=4,tau_without_bonus,8.2"), ElementsAre("bounds 2"));
  EXPECT_THAT(one("p,t,,d,,self_draft,G=4,decoding_efficiency,4.2"), ElementsAre("bounds 2"));
  EXPECT_THAT(one("p,t,,d,,sps,gamma=3,alpha_share,76"), ElementsAre("bounds 2"));
  EXPECT_THAT(one("p,t,,d,,m,,tau_with_bonus,0.9"), ElementsAre("bounds 2"));
  EXPECT_THAT(one("p,t,,d,,m,,alpha_share,101"), ElementsAre("bounds 2"));
  EXPECT_THAT(one("p,t,,d,,m,,speedup,0.8"), IsEmpty()) << "slower is possible";
}

Claims with_overall(const char* overall) {
  std::string text = kClaimsHeader;
  for (const char* part :
       {"coding", "extraction", "humanities", "math", "reasoning", "roleplay", "stem"})
    text += fmt::format("p,t,,mt_bench,{},m,,speedup,2.0,,,,\n", part);
  return parse_claims(
      text +
          fmt::format(
              "p,t,,mt_bench,writing,m,,speedup,3.0,,,,\np,t,,mt_bench,overall,m,,speedup,{},,,,\n",
              overall),
      "t");
}

TEST(Audit, OverallIsNearTheMean) {
  EXPECT_EQ(compared(with_overall("2.12"), "overall_mean"), 1);
  EXPECT_THAT(flagged(with_overall("2.12")), IsEmpty());
  EXPECT_THAT(flagged(with_overall("2.22")), IsEmpty()) << "weighting";
  EXPECT_THAT(flagged(with_overall("2.30")), ElementsAre("overall_mean 10"));
  // A category short, and nothing is compared.
  Claims claims = with_overall("2.90");
  claims.rows.erase(claims.rows.begin());
  EXPECT_THAT(flagged(claims), IsEmpty());
}

TEST(Audit, SameNumbersInTwoModels) {
  const Claims claims =
      claims_of({"p,t,a,d,,m,,tau_with_bonus,4.15,0.02,,,", "p,t,a,d,,m,,speedup,3.81,,,,",
                 "p,t,b,d,,m,,tau_with_bonus,4.15,0.02,,,", "p,t,b,d,,m,,speedup,3.81,,,,",
                 "p,t,c,d,,m,,tau_with_bonus,4.15,0.03,,,", "p,t,c,d,,m,,speedup,3.81,,,,"});
  EXPECT_THAT(flagged(claims),
              ElementsAre("same_numbers 2", "same_numbers 3", "same_numbers 4", "same_numbers 5"));
}

TEST(Audit, ProseAgainstTables) {
  const char* a = "p,Table 1,m-7b,d,,x,k=2;greedy,speedup,3.10,,,,";
  const char* b = "p,Table 1,m-13b,d,,x,k=2;greedy,speedup,2.40,,,,";
  const char* c = "p,Table 1,m-7b,d,,y,greedy,speedup,2.00,,,,";
  const char* d = "p,Table 1,m-13b,d,,y,greedy,speedup,2.00,,,,";
  const char* other = "p,Table 2,m-7b,d,,x,k=4;greedy,speedup,9.00,,,,";
  const auto with = [&](const char* row) { return flagged(claims_of({a, b, c, d, other, row})); };
  EXPECT_THAT(with("p,Abstract,m-7b/13b,d,,x,k=2;stat=max,speedup,3.1,,,,"), IsEmpty());
  EXPECT_THAT(with("p,Abstract,m-7b/13b,d,,x,k=2;stat=max,speedup,3.3,,,,"),
              ElementsAre("prose_table 7"));
  EXPECT_THAT(with("p,Abstract,m-13b,d,,x,stat=max,speedup,3.1,,,,"), ElementsAre("prose_table 7"))
      << "only the model that is meant";
  EXPECT_THAT(with("p,Abstract,all,d,,x,stat=max,speedup,9.0,,,,"), IsEmpty())
      << "any table will do";
  EXPECT_THAT(with("p,Abstract,all,d,,x,k=2;stat=lower_bound,speedup,2,,,,"), IsEmpty());
  EXPECT_THAT(with("p,Abstract,all,d,,x,k=2;versus=y;stat=min,speedup_over_method,1.20,,,,"),
              IsEmpty());
  EXPECT_THAT(with("p,Abstract,all,d,,x,k=2;versus=y;stat=min,speedup_over_method,1.30,,,,"),
              ElementsAre("prose_table 7"));
  EXPECT_THAT(with("p,Abstract,all,d,,x,k=2;versus=y;stat=max,improvement,55,,percent,,"),
              IsEmpty());
  EXPECT_EQ(compared(claims_of({a, "p,Abstract,all,e,,x,stat=max,speedup,7,,,,"}), "prose_table"),
            0)
      << "no table, no finding";
}

TEST(Audit, ProseAgainstAnAblation) {
  const char* on = "p,Table 4,,d,,x,tree=big;csgd=on,alpha_share,77.64,,,,";
  const char* off = "p,Table 4,,d,,x,tree=big;csgd=off,alpha_share,74.37,,,,";
  const char* chain = "p,Table 4,,d,,x,tree=chain8;csgd=on,alpha_share,68.68,,,,";
  EXPECT_THAT(flagged(claims_of(
                  {on, off, chain,
                   "p,Section 4,,d,,x,tree=big;versus=csgd_off,alpha_share_difference,3.26,,,,"})),
              IsEmpty())
      << "3.27 from rounded figures";
  EXPECT_THAT(
      flagged(claims_of(
          {on, off, chain, "p,Section 4,,d,,x,versus=chain8,alpha_share_difference,1.22,,,,"})),
      ElementsAre("prose_table 5"));
}

TEST(Audit, Sums) {
  const char* parts[] = {"p,Table 3,,a,,m,training,train_samples,1029,,,,",
                         "p,Table 3,,b,,m,training,train_samples,20000,,,,",
                         "p,Table 3,,c,,m,training,train_samples,40000,,,,"};
  const auto with = [&](const char* total) {
    return flagged(claims_of({parts[0], parts[1], parts[2], total}));
  };
  EXPECT_THAT(with("p,Section 4,,mix,,m,training,train_samples,61029,,,,"), IsEmpty());
  EXPECT_THAT(with("p,Section 4,,mix,,m,training,train_samples,61000,,,,"), IsEmpty()) << "rounded";
  EXPECT_THAT(with("p,Section 4,,mix,,m,training,train_samples,61023,,,,"), ElementsAre("sum 5"));
  EXPECT_THAT(flagged(claims_of({parts[0], parts[1], parts[2],
                                 "p,Section 4,,c,,m,training,train_samples_used,5000,,,,",
                                 "p,Section 4,,mix,,m,training,train_samples,26029,,,,"})),
              IsEmpty())
      << "of c, only 5000 were used";
}

TEST(Audit, Formats) {
  const Claims claims = claims_of(
      {"p,Table 1,m_1,d,,x,,speedup,3.61,,,,", "p,Table 1,m_1,d,,x,,tau_with_bonus,3.58,,,,"});
  const Audit audit = audit_claims(claims);
  EXPECT_THAT(to_text(audit),
              HasSubstr("\nspeedup_tau, line 2  p      Table 1  m_1 d x  speedup     "
                        "3.61  <= 3.58  3.61 times as fast"));
  EXPECT_THAT(to_latex(audit), HasSubstr("speedup\\_tau, line 2 & p & Table 1 &"));
  EXPECT_THAT(to_text(audit),
              HasSubstr("2 rows, 2 of them checked by a rule, 1 flagged in 1 finding."));
  EXPECT_THAT(to_markdown(audit), HasSubstr("| m\\_1 d x |"));
  EXPECT_THAT(to_json(audit), HasSubstr("\"relation\": \"<=\""));
  const auto records = parse_csv(to_csv(audit), "audit.csv");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].fields.size(), records[1].fields.size());
  EXPECT_EQ(records[1].fields[0], "speedup_tau");
}

TEST(Audit, NothingToSay) {
  const Audit audit = audit_claims(Claims{"empty.csv", {}});
  EXPECT_THAT(audit.findings, IsEmpty());
  EXPECT_THAT(to_text(audit), HasSubstr("0 rows"));
}

// The collection of published numbers marks what its collectors doubt. What follows from the
// numbers themselves must be found, all of it, and nothing else.
TEST(Audit, AgreesWithTheCollectorsDoubts) {
  const std::string path = published_claims();
  if (path.empty()) GTEST_SKIP() << "no published numbers (EVALRUN_SHARED)";
  const std::set<std::string> numeric = {
      "doubt=speedup_above_tau",     "doubt=bonus_counted",  "doubt=alpha_tau", "doubt=copy_error",
      "doubt=overall_vs_categories", "doubt=prose_vs_table", "doubt=sum"};
  const Claims claims = read_claims(path);
  std::set<size_t> found, doubted;
  for (const Finding& f : audit_claims(claims).findings)
    for (const Claim& c : f.flagged) found.insert(c.line);
  for (const Claim& c : claims.rows)
    for (const std::string& tag : c.tags)
      if (numeric.contains(tag)) doubted.insert(c.line);
  EXPECT_EQ(found, doubted);
  EXPECT_EQ(found.size(), 20u);
  EXPECT_EQ(compared(claims, "alpha_tau"), 37);
}

}  // namespace
}  // namespace evalrun::reports
