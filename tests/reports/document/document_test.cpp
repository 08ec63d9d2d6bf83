// One Document in every format.
#include "reports/document/document.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "engine/base/text.h"
#include "reports/document/escape.h"
#include "reports/document/records.h"

namespace evalrun::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Table example() {
  Table t{.columns = {{.name = "method", .words = true},
                      {.name = "a|b", .metric = "speedup", .link = "page#anchor"},
                      {.name = "depth", .room = Room::kPage},
                      {.name = "rows", .room = Room::kWide},
                      {.name = "why", .words = true}}};
  Cell figure("1.42");
  figure.range = "[1.31, 1.54]";
  figure.indicative = true;
  figure.remark = "n=4";
  t.rows = {{"x", figure, "3", "17", "one two three four five six seven eight nine"},
            {"y:k=2,n=3", Cell("2", Style::kBad), "-", "1", "50 %"}};
  t.parts[1] = "Not ranked";
  t.caption = "Figures of τ & α.";
  return t;
}

Document document_of(Table t) {
  Document d{.name = "example"};
  d.paragraph("First, 50 %.");
  d.heading("A_b");
  d.table(std::move(t));
  d.note("c | d");
  return d;
}

size_t longest_line(const std::string& text) {
  size_t longest = 0;
  for (const std::string& line : base::split(text, '\n'))
    longest = std::max(longest, display_width(line));
  return longest;
}

TEST(Document, Text) {
  EXPECT_EQ(render(document_of(example()), Format::kText),
            "First, 50 %.\n\nA_b\n---\n"
            "method                          a|b  depth  rows  why\n"
            "x          1.42 [1.31, 1.54]* (n=4)      3    17  one two three four five six seven "
            "eight nine\n"
            "Not ranked\n"
            "y:k=2,n=3                         2      -     1  50 %\n\n"
            "  c | d\n");
  EXPECT_THAT(text_of(example(), {.colour = true}), HasSubstr("\033[1;31m2\033[0m  "));
}

TEST(Document, NarrowTextWrapsWordsAndLeavesOutColumnsThatExplain) {
  const Document d = document_of(example());
  const std::string wide = render(d, Format::kText, {.width = 80});
  EXPECT_LE(longest_line(wide), 80u);
  EXPECT_THAT(wide, HasSubstr("depth  rows  why"));
  const std::string narrow = render(d, Format::kText, {.width = 70});
  EXPECT_LE(longest_line(narrow), 70u);
  EXPECT_THAT(narrow, HasSubstr("(no room for: rows;")) << "kWide goes first";
  const std::string narrowest = render(d, Format::kText, {.width = 62});
  EXPECT_LE(longest_line(narrowest), 62u);
  EXPECT_THAT(narrowest, HasSubstr("(no room for: depth, rows"));
  // Nothing is cut short.
  for (const std::string& text : {wide, narrow, narrowest})
    for (const char* word : {"one", "seven", "nine", "1.42 [1.31, 1.54]* (n=4)"})
      EXPECT_THAT(text, HasSubstr(word));
}

// "b" goes where the others then fit, and stays where they need two parts in any case.
TEST(Document, SpareColumnsAreLeftOutOfNarrowText) {
  Document d;
  d.table({.columns = {{.name = "method", .words = true},
                       {.name = "a"},
                       {.name = "b", .room = Room::kSpare},
                       {.name = "c"}},
           .rows = {{"name", "1234567890", "77777", "1234567890"}}});
  for (const size_t width : {0u, 37u})
    EXPECT_EQ(render(d, Format::kText, {.width = width}),
              "method           a      b           c\n"
              "name    1234567890  77777  1234567890\n\n");
  for (const size_t width : {36u, 30u}) {
    const std::string text = render(d, Format::kText, {.width = width});
    EXPECT_LE(longest_line(text), width);
    EXPECT_THAT(text, HasSubstr("name    1234567890  1234567890\n(no room for: b;")) << width;
  }
  const std::string parts = render(d, Format::kText, {.width = 29});
  EXPECT_THAT(parts, HasSubstr("name    1234567890  77777\n"));
  EXPECT_THAT(parts, Not(HasSubstr("no room")));
  for (const Format f : {Format::kMarkdown, Format::kLatex, Format::kHtml})
    EXPECT_THAT(render(d, f), HasSubstr("77777"));
}

TEST(Document, Markdown) {
  const std::string text = render(document_of(example()), Format::kMarkdown);
  EXPECT_THAT(text, HasSubstr("### A\\_b\n\n| method"));
  EXPECT_THAT(text, HasSubstr("[a\\|b](page#anchor)"));
  EXPECT_THAT(text, HasSubstr("*Not ranked*"));
  EXPECT_THAT(text, HasSubstr("1.42 [1.31, 1.54]\\* (n=4)"));
  EXPECT_THAT(text, HasSubstr("\n\n- c \\| d\n"));
}

TEST(Document, Latex) {
  const std::string text = render(document_of(example()), Format::kLatex);
  EXPECT_THAT(text, HasSubstr("% First, 50 %.\n"));
  EXPECT_THAT(text, HasSubstr("\\caption{Figures of $\\tau$ \\& $\\alpha$.}"));
  EXPECT_THAT(text, HasSubstr("\\label{tab:evalrun-example-1}"));
  EXPECT_THAT(text, HasSubstr("\\begin{tabular}{lr@{ }lp{0.3\\textwidth}}"));
  EXPECT_THAT(text, HasSubstr("method & \\multicolumn{2}{c}{a$|$b} & why \\\\"));
  EXPECT_THAT(text, HasSubstr("    x & 1.42 & {[}1.31, 1.54]$^{*}$ & one two"));
  EXPECT_THAT(text, HasSubstr("\\multicolumn{4}{l}{\\emph{Not ranked}} \\\\\n"));
  EXPECT_THAT(text, HasSubstr("y:k=2,n=3 & 2 &  & 50\\,\\% \\\\"));
  // A long name without a space may be broken after its commas.
  Document of_long;
  of_long.table({.columns = {{.name = "method", .words = true}},
                 .rows = {{"z:first=one,second=two,third=three,fourth=four"}}});
  EXPECT_THAT(render(of_long, Format::kLatex),
              HasSubstr("z:first=one,\\allowbreak{}second=two,\\allowbreak{}third"));
  // Many intervals stand below their figures.
  Table t = example();
  for (const char* name : {"c", "d"}) {
    t.columns.push_back({.name = name});
    t.rows[0].push_back(t.rows[0][1]);
    t.rows[1].emplace_back("-");
  }
  EXPECT_THAT(render(document_of(t), Format::kLatex),
              HasSubstr("\n     & {\\scriptsize {[}1.31, 1.54]$^{*}$} &  & {"));
}

TEST(Document, Html) {
  Table t = example();
  t.rows[1][0].badges.push_back({"proven", Style::kGood, "certificate"});
  const std::string text = render(document_of(t), Format::kHtml);
  EXPECT_THAT(text, HasSubstr("<th scope=\"col\"><a href=\"#def-speedup\">a|b</a></th>"));
  EXPECT_THAT(text, HasSubstr("y:<wbr>k=2,<wbr>n=3 <a href=\"#def-certificate\"><span "
                              "class=\"badge good\">proven</span></a>"));
  EXPECT_THAT(text,
              HasSubstr("1.42 <span class=\"range\">[1.31, 1.54]</span><a href=\"#def-indic"));
  EXPECT_THAT(text, HasSubstr("<span class=\"badge bad\">2</span>"));
  EXPECT_THAT(text, HasSubstr("colspan=\"4\"><span>Not ranked"));
  EXPECT_THAT(text, Not(HasSubstr("rows<"))) << "no room on the page";
}

TEST(Document, CsvHoldsTheDataOrElseTheTables) {
  Document d = document_of(example());
  EXPECT_THAT(render(d, Format::kCsv), HasSubstr("method,a|b,depth,rows,why\n"));
  EXPECT_THAT(render(d, Format::kCsv), HasSubstr("\n\"y:k=2,n=3\",2,-,1,50 %\n"));
  d.data = records(Json::array({{{"a", nullptr}, {"b", {{"lo", 0.1}, {"hi", "x, y"}}}},
                                {{"a", {1, 2}}, {"b", {{"lo", 3}, {"hi", true}}}}}));
  EXPECT_EQ(render(d, Format::kCsv), "a,b_lo,b_hi\n,0.1,\"x, y\"\n1;2,3,true\n");
}

TEST(Document, FormatsAreKnownByNameAndByEnding) {
  for (const std::string& name : format_names())
    EXPECT_EQ(format_names()[static_cast<size_t>(*format_named(name))], name);
  EXPECT_FALSE(format_named("page.html"));
  EXPECT_EQ(format_of_file("page.html"), Format::kHtml);
  EXPECT_EQ(format_of_file("a.b/table.tex"), Format::kLatex);
  EXPECT_EQ(format_of_file("x.md"), Format::kMarkdown);
  for (const char* none : {"html", "page.", "a.b/c", ".md", "x.pdf", "x.latex"})
    EXPECT_FALSE(format_of_file(none)) << none;
}

}  // namespace
}  // namespace evalrun::reports
