// What CI systems read, to the letter.
#include "reports/gate/ci_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/document/escape.h"
#include "reports/format.h"

namespace evalrun::reports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CiReport report_of(std::vector<CiCase> cases) {
  CiReport report;
  report.name = "evalrun check";
  report.summary = "check: regression - pld";
  report.started = "2026-01-02T03:04:05Z";
  report.seconds = 12.5;
  report.properties = {{"commit", "abc"}, {"model", "a&b"}};
  report.cases = std::move(cases);
  return report;
}

TEST(CiReport, JunitToTheLetter) {
  const CiReport report = report_of({{"tokens pld", CiState::kPassed, "", "same tokens", {}},
                                     {"speed pld", CiState::kFailed, "regression", "-10 %", 1.5},
                                     {"speed sps", CiState::kWarned, "inconclusive", "5 < 7", {}},
                                     {"lossless", CiState::kPassed, "", "", {}}});
  EXPECT_EQ(junit_xml(report), R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="evalrun check" tests="4" failures="1" errors="0" skipped="1" time="12.500">
  <testsuite name="evalrun check" tests="4" failures="1" errors="0" skipped="1" time="12.500" timestamp="2026-01-02T03:04:05Z">
    <properties>
      <property name="commit" value="abc"/>
      <property name="model" value="a&amp;b"/>
    </properties>
    <testcase classname="evalrun.check" name="tokens pld">
      <system-out>same tokens</system-out>
    </testcase>
    <testcase classname="evalrun.check" name="speed pld" time="1.500">
      <failure type="regression" message="-10 %">-10 %</failure>
    </testcase>
    <testcase classname="evalrun.check" name="speed sps">
      <skipped message="inconclusive: 5 &lt; 7"/>
    </testcase>
    <testcase classname="evalrun.check" name="lossless">
    </testcase>
    <system-out>check: regression - pld</system-out>
  </testsuite>
</testsuites>
)");
}

TEST(CiReport, CasesOfTheSameNameAreNumbered) {
  const CiCase reason{"comparable", CiState::kFailed, "no-baseline", "x", {}};
  const std::string xml = junit_xml(report_of({reason, reason, reason}));
  for (const char* name :
       {"name=\"comparable\"", "name=\"comparable (2)\"", "name=\"comparable (3)\""})
    EXPECT_THAT(xml, HasSubstr(name));
}

TEST(CiReport, XmlHoldsNoForbiddenCharacter) {
  EXPECT_EQ(escape_xml("<a b=\"c\" d='e'>&]]>"),
            "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;]]&gt;");
  EXPECT_EQ(escape_xml("tab\tline\nend\r"), "tab&#9;line&#10;end&#13;");
  std::string controls(1, '\0');
  for (char c = 1; c < 0x20; ++c)
    if (c != '\t' && c != '\n' && c != '\r') controls += c;
  EXPECT_EQ(escape_xml(controls + "x\uFFFE\uFFFF"), "x");
  EXPECT_EQ(escape_xml("caf\u00e9 \U0001F600"), "caf\u00e9 \U0001F600");
  // Not UTF-8: a byte alone, a surrogate, a cut character.
  EXPECT_EQ(escape_xml("\xff|\xed\xa0\x80|\xe2\x82"), "\uFFFD|\uFFFD\uFFFD\uFFFD|\uFFFD");
}

TEST(CiReport, GithubCommandsStayOnTheirLine) {
  const CiReport report =
      report_of({{"a", CiState::kPassed, "", "fine", {}},
                 {"speed pld:k=4,n=2", CiState::kFailed, "a:b,c%", "10 %\r\n::error::x, y: z", {}},
                 {"speed sps", CiState::kWarned, "inconclusive", "few", {}}});
  EXPECT_THAT(github_commands(report),
              ElementsAre("::error title=evalrun check%3A a%3Ab%2Cc%25::speed pld:k=4,n=2: 10 "
                          "%25%0D%0A::error::x, y: z",
                          "::warning title=evalrun check%3A inconclusive::speed sps: few"));
}

TEST(CiReport, GithubSummaryIsATable) {
  const CiReport report = report_of({{"speed", CiState::kFailed, "regression", "a|b\n<c>", {}}});
  EXPECT_EQ(github_summary(report),
            "### evalrun check\n\ncheck: regression - pld\n\n"
            "| case  | state              | why       |\n"
            "|:------|:-------------------|:----------|\n"
            "| speed | failed: regression | a\\|b \\<c> |\n\n"
            "commit abc, model a&b\n\n");
}

}  // namespace
}  // namespace evalrun::reports
