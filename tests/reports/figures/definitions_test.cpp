// Every table says where its columns are defined, and that place exists.
#include <gmock/gmock.h>

#include <regex>
#include <set>

#include "engine/base/text.h"
#include "reports/claims/published_vs_measured.h"
#include "reports/compare/compare.h"
#include "reports/papers/table.h"
#include "reports/table/metric_glossary.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// As web pages of repositories make them of headings; and anchors written out.
std::set<std::string> anchors_of(const std::string& markdown) {
  std::set<std::string> anchors;
  const std::regex written("<a id=\"([^\"]+)\"></a>");
  for (auto it = std::sregex_iterator(markdown.begin(), markdown.end(), written);
       it != std::sregex_iterator(); ++it)
    anchors.insert((*it)[1]);
  for (const std::string& line : base::split(markdown, '\n')) {
    if (!line.starts_with("##")) continue;
    std::string anchor;
    for (const char c : line.substr(line.find(' ') + 1))
      if (c == ' ' || c == '-')
        anchor += '-';
      else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_')
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    anchors.insert(anchor);
  }
  return anchors;
}

class DefinitionsTest : public ReportTest {
 protected:
  // Every reference in the text; there must be at least one.
  void expect_linked(const std::string& text, const char* what) {
    const std::regex link("docs/measurement\\.md#([a-z0-9-]+)");
    int found = 0;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), link);
         it != std::sregex_iterator(); ++it, ++found)
      EXPECT_THAT(anchors_, Contains((*it)[1].str())) << what;
    EXPECT_GT(found, 0) << what;
  }
  const std::set<std::string> anchors_ =
      anchors_of(base::read_file(EVALRUN_SOURCE_DIR "/docs/measurement.md"));
};

TEST_F(DefinitionsTest, EveryMetricHasItsPlace) {
  for (const MetricInfo& m : metric_glossary()) EXPECT_THAT(anchors_, Contains(m.anchor)) << m.name;
  EXPECT_EQ(definition_of("tau"), "docs/measurement.md#ratios");
  EXPECT_EQ(definition_of("pass@1"), "docs/measurement.md#quality");
  EXPECT_EQ(definition_of("never heard of"), "docs/measurement.md");
}

TEST_F(DefinitionsTest, EveryTableNamesThem) {
  run_.tasks = {"gsm8k", "mt_bench"};
  run_.arms.push_back(run_.arms.back());
  run_.arms.back().label = run_.arms.back().method = "pld";
  const int64_t id = tests::fill(store_, run_);
  const Report r = build_report(store_, id);
  const std::string markdown = to_markdown(r);
  expect_linked(markdown, "Markdown");
  for (const char* header :
       {"[speedup [95 %]](docs/measurement.md#speedup)", "[tau](docs/measurement.md#ratios)",
        "[KV](docs/measurement.md#memory)",
        "[residual](docs/measurement.md#why-a-method-is-as-fast-as-it-is)"})
    EXPECT_THAT(markdown, HasSubstr(header));
  const std::string text = to_text(build_report(store_, id, {.explain = true}));
  const size_t at = text.find("docs/measurement.md (");
  ASSERT_NE(at, text.npos);
  for (const std::string& section :
       base::split(text.substr(at + 21, text.find(')', at) - at - 21), ','))
    EXPECT_THAT(anchors_, Contains(section.substr(section.find('#') + 1)));
  EXPECT_THAT(to_latex(r), HasSubstr("docs/measurement.md"));
  EXPECT_THAT(to_html(r, store_), HasSubstr("docs/measurement.md"));
  const Comparison c = compare_runs(store_, id, store_, id);
  expect_linked(to_text(c), "compare, text");
  expect_linked(to_markdown(c), "compare, Markdown");
  const auto papers = paper_tables(store_, id, {}, find_paper_forms("falcon"), {});
  expect_linked(to_text(papers), "papers, text");
  expect_linked(to_markdown(papers), "papers, Markdown");
  expect_linked(to_latex(papers), "papers, LaTeX");
  expect_linked(to_csv(papers), "papers, CSV");
}

}  // namespace
}  // namespace evalrun::reports
