// Reading published numbers: RFC 4180, the columns, and what is refused.
#include "reports/claims/claims.h"

#include <gmock/gmock.h>

#include "engine/base/error.h"
#include "reports/claims/csv.h"
#include "tests/reports/claims/claims_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The error of `text`, which must name all of `named` and hold a remedy.
void expect_refused(const std::string& text, std::initializer_list<const char*> named) {
  try {
    parse_claims(text, "t.csv");
    ADD_FAILURE() << "not refused: " << text;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kData);
    EXPECT_NE(error.hint(), "");
    for (const char* part : named) EXPECT_THAT(error.message(), HasSubstr(part));
  }
}

TEST(Csv, QuotesCommasAndLineEnds) {
  const auto records = parse_csv("a,\"b,\"\"c\"\"\",\r\n\"two\nlines\",,x y\n,", "t.csv");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_THAT(records[0].fields, ElementsAre("a", "b,\"c\"", ""));
  EXPECT_THAT(records[1].fields, ElementsAre("two\nlines", "", "x y"));
  EXPECT_THAT(records[2].fields, ElementsAre("", ""));
  EXPECT_EQ(records[1].line, 2u);
  EXPECT_EQ(records[2].line, 4u) << "the quoted line end counts";
  EXPECT_THAT(parse_csv("", "t.csv"), IsEmpty());
  EXPECT_THAT(parse_csv("\xEF\xBB\xBFx", "t.csv")[0].fields, ElementsAre("x"));
}

TEST(Csv, RefusesWhatTheRfcDoes) {
  for (const auto& [text, where] : {std::pair{"a\nb\"c\n", "line 2"},
                                    {"\"a\"b\n", "line 1"},
                                    {"x\n\"a\n\n", "line 2"},
                                    {"a\rb\n", "line 1"}})
    try {
      parse_csv(text, "t.csv");
      ADD_FAILURE() << text;
    } catch (const base::Error& error) {
      EXPECT_THAT(error.message(), HasSubstr(std::string("t.csv: ") + where));
    }
}

TEST(Claims, ReadsARow) {
  const Claims claims = claims_of(
      {R"(eagle,Table 1,vicuna-7b,mt_bench,overall,eagle1,k=5;greedy,tau_with_bonus,3.90,0.02,)"
       R"(tokens/step,A100,"doubt=alpha_tau; caveat=kv_cache; remark, with a comma")"});
  ASSERT_EQ(claims.rows.size(), 1u);
  const Claim& c = claims.rows[0];
  EXPECT_EQ(c.line, 2u);
  EXPECT_EQ(c.value, 3.9);
  EXPECT_EQ(c.sd, 0.02);
  EXPECT_EQ(c.value_text, "3.90");
  EXPECT_DOUBLE_EQ(c.rounding(), 0.005);
  EXPECT_THAT(c.flags, ElementsAre("k=5", "greedy"));
  EXPECT_THAT(c.tags, ElementsAre("doubt=alpha_tau", "caveat=kv_cache"));
  EXPECT_EQ(c.number("k"), 5);
  EXPECT_EQ(c.option("greedy"), std::nullopt);
  EXPECT_EQ(c.decoding(), "greedy");
  EXPECT_TRUE(c.measured());
  EXPECT_EQ(c.description(), "vicuna-7b mt_bench overall eagle1 k=5;greedy");
}

TEST(Claims, RoundingFollowsThePrintedDigits) {
  const auto rounding = [](const char* text) {
    Claim c;
    c.value_text = text;
    return c.rounding();
  };
  EXPECT_DOUBLE_EQ(rounding("12"), 0.5);
  EXPECT_DOUBLE_EQ(rounding("-0.1"), 0.05);
  EXPECT_DOUBLE_EQ(rounding("5e-5"), 5e-6);
  EXPECT_DOUBLE_EQ(rounding("1.25E+2"), 0.5);
}

TEST(Claims, ConfigurationSaysWhatARowIs) {
  const auto of = [](const char* config) {
    return claims_of({(std::string("p,t,,,,sps,") + config + ",speedup,2,,,,").c_str()}).rows[0];
  };
  EXPECT_EQ(of("temperature=1").decoding(), "sampled");
  EXPECT_EQ(of("k=5;top_p=0.95").decoding(), "sampled");
  EXPECT_EQ(of("temperature=0").decoding(), "greedy");
  EXPECT_EQ(of("k=5").decoding(), "");
  EXPECT_FALSE(of("greedy;stat=min").measured());
  EXPECT_FALSE(of("versus=medusa").measured());
  EXPECT_EQ(of("k=5x").number("k"), std::nullopt);
}

TEST(Claims, ColumnsMayStandInAnyOrder) {
  const Claims claims = parse_claims(
      "value,paper,place,metric,model,dataset,category,method,config,sd,unit,hardware,note\r\n"
      ",p,Figure 1,speedup,,,,,,,,,unread=figure\r\n",
      "t.csv");
  EXPECT_EQ(claims.rows[0].paper, "p");
  EXPECT_EQ(claims.rows[0].value, std::nullopt) << "empty = not stated";
}

TEST(Claims, RefusesBadTables) {
  const std::string header = kClaimsHeader;
  expect_refused("", {"t.csv", "line 1", "empty"});
  expect_refused("paper,place\np,t\n", {"line 1", "column model", "missing"});
  expect_refused("papper" + header.substr(5), {"line 1", "papper"});
  expect_refused("paper," + header, {"line 1, column paper", "twice"});
  expect_refused(header + "p,t,,,,m,,speedup,2,,,\n", {"line 2", "12 fields, expected 13"});
  expect_refused(header + "\n", {"line 2", "1 fields"});
  expect_refused(header + "p,t,,,,m,,speedup,2x,,,,\n", {"line 2, column value", "'2x'"});
  expect_refused(header + "p,t,,,,m,,speedup,\"1,275\",,,,\n", {"column value", "1,275"});
  expect_refused(header + "p,t,,,,m,,speedup,nan,,,,\n", {"column value", "nan"});
  expect_refused(header + "p,t,,,,m,,speedup,2,+-3,,,\n", {"column sd", "+-3"});
  expect_refused(header + "p,,,,,m,,speedup,2,,,,\n", {"line 2, column place", "empty"});
  expect_refused(header + "p,t,,,,m,,speedup,2,,,,\xC3(\n", {"line 2, column note", "UTF-8"});
  expect_refused(header + "p,t,,,,m,,speedup,2,,ratio,,\np,t,,,,m,,speedup,3,,,,x\n",
                 {"line 3", "line 2"});
}

TEST(Claims, SelectsPapers) {
  const Claims claims = claims_of({"a,t,,,,m,,speedup,2,,,,", "b,t,,,,m,,speedup,2,,,,"});
  EXPECT_EQ(select_papers(claims, {}).rows.size(), 2u);
  EXPECT_THAT(select_papers(claims, {"b"}).papers(), ElementsAre("b"));
  try {
    select_papers(claims, {"c"});
    ADD_FAILURE() << "an unknown paper was taken";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("a, b"));
  }
}

}  // namespace
}  // namespace evalrun::reports
