// The HTML and LaTeX reports: escapes, what is where, an independent parser, and a browser.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "engine/base/text.h"
#include "reports/claims/published_vs_measured.h"
#include "reports/document/escape.h"
#include "reports/format.h"
#include "reports/html/html_data.h"
#include "reports/html/timeline.h"
#include "tests/e2e/program.h"
#include "tests/reports/batch_run.h"
#include "tests/reports/claims/claims_fixture.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// What a method label or a prompt may hold, at its worst.
constexpr const char* kNasty = "x</script><!--&_%$#{}~^\\\"'<b>[*] \u4E2D\u00E9\u03C4";

TEST(Escapes, Html) {
  EXPECT_EQ(escape_html("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(escape_html("\u4E2D\U0001F600"), "\u4E2D\U0001F600");
  EXPECT_EQ(escape_html("a\xFF"
                        "b\xE4\xB8"),
            "a\uFFFD"
            "b\uFFFD")
      << "never not UTF-8";
  EXPECT_EQ(escape_html("\xC0\xBC"
                        "script"),
            "\uFFFD\uFFFDscript")
      << "an overlong '<'";
}

TEST(Escapes, Latex) {
  EXPECT_EQ(escape_latex("pld:k=4,a_b 5% {x} #1 $ & ~ ^ \\"),
            "pld:k=4,a\\_b 5\\% \\{x\\} \\#1 \\$ \\& \\textasciitilde{} \\textasciicircum{} "
            "\\textbackslash{}");
  EXPECT_EQ(escape_latex("[a]* \"q\" <|>"), "{[}a]{*} ''q'' $<$$|$$>$");
  EXPECT_EQ(escape_latex("caf\u00E9 \u03C4 \u00D7 a\u2013b"), "caf\u00E9 $\\tau$ $\\times$ a--b");
  EXPECT_EQ(escape_latex("\u4E2D \u00F0 \xFF"), "{[}U+4E2D] {[}U+00F0] {[}U+FFFD]");
  EXPECT_EQ(escape_latex("a\nb\t%"), "a b \\%") << "a line break may end a comment";
}

class PageTest : public ReportTest {
 protected:
  // A run with everything that is drawn: two data sets, a lossy arm, a sweep of one parameter and
  // one of two, row costs; and with names that break what does not escape.
  int64_t full_run() {
    run_.tasks = {"gsm8k", "samples_chat"};
    const tests::SyntheticArm pld = run_.arms.back();
    run_.arms.pop_back();
    const auto add = [&](const std::string& label, std::vector<int> accepted) -> auto& {
      run_.arms.push_back(pld);
      run_.arms.back().label = label;
      run_.arms.back().accepted = std::move(accepted);
      return run_.arms.back();
    };
    for (const char* k : {"2", "4"})
      for (const char* ngram : {"2", "3"})
        add(fmt::format("pld:k={},ngram={}", k, ngram), {3, 1, 0, *k - '0' - 2});
    tests::SyntheticArm& lossy = add(kNasty, {2, 2});
    lossy.method = "lossy";
    lossy.lossless = "none";
    run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& arm, int prompt, int,
                     int) {
      if (arm.role == "aa") g.turns[0].decode_ns += 1'000'000 * (prompt - 1);
      g.texts = {kNasty};
    };
    const int64_t id = tests::fill(store_, run_);
    store_.execute("UPDATE arm SET params = substr(label, 5) WHERE method = 'pld'");
    store_.execute("UPDATE prompt SET turns = ?", {json(std::vector<std::string>{kNasty}).dump()});
    store_.execute(
        "UPDATE prompt SET category = CASE id % 2 WHEN 0 THEN 'math' ELSE '<i>prose' END "
        "WHERE task = 'samples_chat'");
    store_.add_environment(id, "model_path", "/somewhere/of/mine/model.gguf");
    store_.add_environment(id, "row_cost", R"({"context": 256, "rows": [
        {"rows": 1, "ms": 10, "q1_ms": 9.5, "q3_ms": 11, "ratio": 1},
        {"rows": 8, "ms": 15, "q1_ms": 14, "q3_ms": 16, "ratio": 1.5}]})");
    store_.add_environment(id, "row_cost_batch_8", R"({"context": 256, "rows": []})");
    return id;
  }
  std::string page(int64_t id) {
    const Report r = build_report(store_, id, {.parts = true});
    const PublishedVsMeasured claimed = compare_with_claims(
        r, claims_of(
               {"q,Table <1>,llama-7b,gsm8k,,pld,greedy,tau_without_bonus,2.40,,,A&100,caveat=x; y",
                "q,Table 2,llama-7b,gsm8k,,pld,greedy,speedup,3.60,,,A&100,",
                "q,Table 3,llama-7b,gsm8k,,pld,temperature=1,speedup,2.2,,,A&100,"}));
    return to_html(r, store_, &claimed);
  }
  std::string write_page() {
    scratch_.write("report.html", page(full_run()));
    return scratch_.file("report.html");
  }
  tests::TempFolder scratch_;
};

TEST_F(PageTest, DataHoldsWhatIsDrawn) {
  const int64_t id = full_run();
  const Report report = build_report(store_, id);
  const std::string text = html_data(report, store_);
  EXPECT_EQ(text.find('<'), std::string::npos) << "no tag can begin in the data";
  const json data = json::parse(text);
  EXPECT_EQ(data["datasets"], (json{"gsm8k", "samples_chat", "all"}));
  ASSERT_EQ(data["rows"].size(), report.rows.size());
  for (size_t i = 0; i < report.rows.size(); ++i) {
    EXPECT_EQ(data["rows"][i]["method"], report.rows[i].arm.label);
    EXPECT_EQ(data["rows"][i]["lossy"], report.rows[i].arm.lossy());
    EXPECT_EQ(data["rows"][i]["speedup"], *report.rows[i].speed.speedup);
    EXPECT_EQ(data["rows"][i]["request_speedup"], *report.rows[i].speed.request);
    EXPECT_EQ(data["rows"][i]["request_speedup_lo"].is_number(), i % run_.arms.size() > 0);
    EXPECT_EQ(data["rows"][i]["first_token_ms"], 50) << "tests/results/synthetic.cpp";
    EXPECT_EQ(data["rows"][i]["first_token_ratio"], 1);
    EXPECT_EQ(data["rows"][i]["first_token_ratio_n_eff"].is_number(), i % run_.arms.size() > 0);
    EXPECT_EQ(data["rows"][i]["tau_lo"].is_number(), report.rows[i].arm.drafts());
  }
  EXPECT_EQ(data["row_cost"]["rows"][1],
            (json{{"rows", 8}, {"ratio", 1.5}, {"lo", 1.4}, {"hi", 1.6}, {"ms", 15}}));
  // pld takes k = 2, 4 and ngram = 2, 3: the grid, then two curves along each.
  ASSERT_EQ(data["sweeps"].size(), 5u);
  EXPECT_EQ(data["sweeps"][0]["parameters"], (json{"k", "ngram"}));
  EXPECT_EQ(data["sweeps"][0]["points"].size(), 4u);
  EXPECT_EQ(data["sweeps"][1]["parameters"], json{"k"});
  EXPECT_EQ(data["sweeps"][1]["fixed"], "ngram=2");
  // One generation of every arm but A/A, whose steps add up to its tokens.
  ASSERT_EQ(data["timelines"].size(), run_.arms.size() - 1);
  for (const json& t : data["timelines"]) {
    EXPECT_EQ(t["prompt"], "gsm8k/0");
    EXPECT_EQ(t["question"], kNasty);
    int64_t emitted = 0;
    for (const json& step : t["steps"]) {
      ASSERT_EQ(step.size(), data["step_columns"].size());
      emitted += step[4].get<int64_t>();
    }
    EXPECT_EQ(emitted, run_.tokens - 1);
  }
}

TEST_F(PageTest, BrokenRowCostsAndPromptsShowNothing) {
  const int64_t id = full_run();
  const Report report = build_report(store_, id);
  for (const char* broken : {"", "[]", "{\"rows\": 3}", "{\"rows\": []}", "{\"rows\": [3]}",
                             R"({"rows": [{"rows": 1, "ms": 0, "q1_ms": 0, "q3_ms": 0}]})",
                             R"({"rows": [{"rows": 1, "ms": "2", "q1_ms": 0, "q3_ms": 0}]})"}) {
    store_.execute("UPDATE environment SET value = ? WHERE name = 'row_cost'",
                   {std::string(broken)});
    store_.execute("UPDATE prompt SET turns = ?", {std::string(broken)});
    const json data = json::parse(html_data(build_report(store_, id), store_));
    EXPECT_TRUE(data["row_cost"].is_null()) << broken;
    EXPECT_EQ(data["timelines"][0]["question"], "") << broken;
  }
}

TEST_F(PageTest, ReadsTheStepsOfOneGenerationOnly) {
  const int64_t id = tests::fill(store_, run_);
  // The first finished one that nobody tampered with.
  store_.execute("UPDATE generation SET status = 'failed: x' WHERE id = 3");
  const std::vector<Timeline> timelines = load_timelines(store_, id);
  ASSERT_EQ(timelines.size(), 2u);
  EXPECT_EQ(timelines[0].generation, 1);
  EXPECT_EQ(timelines[0].n_steps, run_.tokens - 1);
  EXPECT_EQ(timelines[1].prompt, "gsm8k/1");
  // Long ones are cut, and say so.
  run_.key = "long";
  run_.tokens = 1 + 2 * static_cast<int>(kTimelineSteps);
  const Timeline cut = load_timelines(store_, tests::fill(store_, run_))[0];
  EXPECT_EQ(cut.steps.size(), static_cast<size_t>(kTimelineSteps));
  EXPECT_EQ(cut.n_steps, 2 * kTimelineSteps);
  // Steps are found by their turn and generations by their arm, never by a scan.
  for (const char* sql :
       {"SELECT rows FROM step WHERE turn_id = ? ORDER BY idx LIMIT ?",
        "SELECT id, prompt_id FROM generation WHERE arm_id = ? AND status = 'ok' AND fault = '' "
        "ORDER BY prompt_id, repeat, sample LIMIT 1"})
    store_.query(std::string("EXPLAIN QUERY PLAN ") + sql, {}, [&](const results::Row& r) {
      EXPECT_THAT(r.text(3), ::testing::StartsWith("SEARCH")) << sql;
      return true;
    });
}

TEST_F(PageTest, TablesAreThereWithoutScripts) {
  const std::string html = page(full_run());
  const std::string body = html.substr(0, html.find("<script"));
  EXPECT_THAT(body,
              HasSubstr("pld:<wbr>k=4,<wbr>ngram=3 <span class=\"badge good\">lossless</span>"));
  EXPECT_THAT(body, HasSubstr(escape_html(kNasty)));
  EXPECT_THAT(body, HasSubstr("Not lossless, and not to be ranked"));
  EXPECT_THAT(body, HasSubstr("href=\"#def-indicative\"")) << "four prompts";
  EXPECT_THAT(body, HasSubstr("100.0 %"));
  EXPECT_THAT(body, HasSubstr("Quality: every answer scores as ar"));
  EXPECT_THAT(body, HasSubstr("plain decoding against itself"));
  EXPECT_THAT(body, HasSubstr("id=\"def-alpha_draft\""));
  EXPECT_THAT(body, HasSubstr("<td>model.gguf</td>"));
  EXPECT_THAT(body, Not(HasSubstr("row_cost_batch"))) << "tables are no text";
  EXPECT_THAT(html, Not(HasSubstr("/somewhere")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, HasSubstr("Released under the MIT License"));
  EXPECT_LT(html.size(), 600'000u);
}

// A token that differs is a broken promise of a lossless greedy method, and none of a lossy one.
TEST_F(PageTest, BadgesTellABrokenPromise) {
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                   int) {
    if (a.role == "method" && prompt == 0) ++g.turns[0].tokens[3];
  };
  EXPECT_THAT(page(tests::fill(store_, run_)), HasSubstr("<span class=\"badge bad\">75.0 %"));
  run_.key = "lossy";
  run_.arms.back().lossless = "none";
  EXPECT_THAT(page(tests::fill(store_, run_)), HasSubstr("<td>75.0 %</td>"));
}

TEST_F(PageTest, AnIndependentParserFindsNothingWrong) {
  const std::string file = write_page();
  const std::string checker = EVALRUN_SOURCE_DIR "/tests/reports/html/check_html.py";
  const auto checked = [&] { return tests::run_command_in(scratch_, {"python3", checker, file}); };
  tests::ProgramResult result = checked();
  if (result.exit_code == 127) GTEST_SKIP() << "there is no python3";
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  // It would find something.
  const std::string html = base::read_file(file);
  for (const auto& [from, to] : std::map<std::string, std::string>{
           {"x&lt;/script&gt;", "x</script>"},
           {"<main>", "<main onclick=\"x()\">"},
           {"<main>", "<main><img src=\"https://example.org/x.png\">"},
           {"'use strict';", "'use strict' ;"},
           {"#def-speedup", "#nowhere"}}) {
    std::string broken = html;
    ASSERT_NE(broken.find(from), std::string::npos) << from;
    broken.replace(broken.find(from), from.size(), to);
    scratch_.write("report.html", broken);
    result = checked();
    EXPECT_EQ(result.exit_code, 1) << to;
    EXPECT_EQ(result.err, "") << to;
  }
}

bool has_browser(const tests::TempFolder& scratch) {
  return tests::run_command_in(scratch, {"chromium", "--version"}).exit_code == 0;
}

// The page as a browser that can reach nothing has drawn it.
tests::ProgramResult drawn_page(const tests::TempFolder& scratch, const std::string& page) {
  return tests::run_command_in(
      scratch,
      {"timeout", "120", "chromium", "--headless", "--no-sandbox", "--disable-gpu",
       "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
       "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
       "--user-data-dir=" + scratch.file("profile"), "--enable-logging=stderr",
       "--log-net-log=" + scratch.file("net.json"), "--virtual-time-budget=5000", "--dump-dom",
       "file://" + page});
}

std::ptrdiff_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {});
}

TEST_F(BatchRun, ABrowserDrawsThroughputAndSpeedupBySize) {
  const tests::TempFolder scratch;
  if (!has_browser(scratch)) GTEST_SKIP() << "there is no chromium";
  const auto table = [](int rows) { return 9.0 + rows; };
  const ReportOptions options{.row_times = [&](const RunInfo&) { return RowTimes{.one = table}; }};
  scratch.write("batches.html", to_html(build_report(store_, fill(), options), store_));
  const tests::ProgramResult page = drawn_page(scratch, scratch.file("batches.html"));
  EXPECT_THAT(page.err, Not(HasSubstr("CONSOLE")));
  for (const char* id : {"id=\"fig-batches\"", "id=\"fig-front\"", "id=\"fig-speedup\""}) {
    const size_t begin = page.out.find(id);
    ASSERT_NE(begin, page.out.npos) << id;
    const std::string figure = page.out.substr(begin, page.out.find("</figure>", begin) - begin);
    EXPECT_EQ(figure.find("hidden"), figure.npos) << id;
    EXPECT_EQ(count(figure, "<canvas[^>]* data-drawn=\"yes\""), 1) << id;
  }
  const size_t lengths = page.out.find("id=\"fig-lengths\"");
  ASSERT_NE(lengths, page.out.npos);
  const std::string best = page.out.substr(lengths, page.out.find("</figure>", lengths) - lengths);
  EXPECT_EQ(best.find("hidden"), best.npos);
  EXPECT_EQ(count(best, "<table class=\"heat\""), 1) << "predicted; one length was measured";
  EXPECT_THAT(best, HasSubstr("best draft length, predicted (speedup)"));
  EXPECT_THAT(page.out, HasSubstr("<option value=\"2\">2</option>"));
  scratch.write("alone.html", to_html(build_report(store_, fill(false)), store_));
  const std::string alone = drawn_page(scratch, scratch.file("alone.html")).out;
  EXPECT_THAT(alone, HasSubstr("id=\"fig-batches\" hidden=\"\""));
  EXPECT_THAT(alone, HasSubstr("id=\"fig-lengths\" hidden=\"\""));
}

// Draws every chart in a browser that can reach nothing.
TEST_F(PageTest, ABrowserDrawsEveryChart) {
  const std::string file = write_page();
  if (!has_browser(scratch_)) GTEST_SKIP() << "there is no chromium";
  const auto dump = [&](const std::string& page) { return drawn_page(scratch_, page); };
  const tests::ProgramResult result = dump(file);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("CONSOLE"))) << "errors of scripts and of the policy";
  const std::string body = result.out.substr(0, result.out.rfind("<footer"));
  // Speedup, why, acceptance (2), quality, data sets, parts, cost, timeline (2); the sweep of two
  // parameters is a table.
  EXPECT_EQ(count(body, "<canvas"), 10);
  EXPECT_EQ(count(body, "<canvas[^>]* data-drawn=\"yes\""), 10);
  EXPECT_EQ(count(body, "<table class=\"heat\""), 2);
  EXPECT_EQ(count(body, "<details class=\"figures\""), 9) << "a table for every figure";
  // The page asked for nothing; Chromium's own errands have another isolation key. The log is
  // whole only when Chromium ended well, so the test looks for its first words.
  const auto requests = [&] {
    const std::vector<std::string> lines = base::split(scratch_.read("net.json"), '\n');
    return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find("\"network_isolation_key\":\"file:") != line.npos &&
             line.find("\"url\":\"http") != line.npos;
    });
  };
  EXPECT_THAT(scratch_.read("net.json"), HasSubstr("constants"));
  EXPECT_EQ(requests(), 0);
  // Every choice of every selector draws, too; the page's policy would not run this script.
  std::string chosen = base::read_file(file);
  const auto exchange = [](std::string& html, const std::string& from, const std::string& to) {
    ASSERT_NE(html.find(from), std::string::npos) << from;
    html.replace(html.find(from), from.size(), to);
  };
  exchange(chosen, "Content-Security-Policy", "X-None");
  exchange(chosen, "</body>", R"(<script>
      let changes = 0;
      for (const select of document.querySelectorAll('select'))
        for (const option of select.options) {
          select.value = option.value;
          select.dispatchEvent(new Event('change'));
          ++changes;
        }
      document.body.dataset.changes = changes;
    </script></body>)");
  scratch_.write("chosen.html", chosen);
  const tests::ProgramResult all = dump(scratch_.file("chosen.html"));
  EXPECT_THAT(all.err, Not(HasSubstr("CONSOLE")));
  // Three data sets, one evaluator, one set with parts, five sweeps, six arms; the last sweep is a
  // pair of curves.
  EXPECT_THAT(all.out, HasSubstr("data-changes=\"16\""));
  EXPECT_EQ(count(all.out, "<canvas[^>]* data-drawn=\"yes\""), 12);
  // Arms trained on test prompts have their mark in tables by part and by data set, and its line.
  store_.execute("UPDATE arm SET settings = ? WHERE method = 'pld'",
                 {std::string(R"({"adapter_overlap":"{\"gsm8k\":3}"})")});
  scratch_.write("marked.html", page(1));
  const std::string marked = dump(scratch_.file("marked.html")).out;
  for (const char* id : {"id=\"fig-parts\"", "id=\"fig-datasets\""}) {
    const size_t begin = marked.find(id);
    ASSERT_NE(begin, marked.npos) << id;
    const std::string figure = marked.substr(begin, marked.find("</figure>", begin) - begin);
    EXPECT_THAT(figure, HasSubstr("pld:k=4,ngram=3 \u2020<")) << id;
    EXPECT_THAT(figure, HasSubstr("\u2020: pld:k=2,ngram=2 was trained on 3 prompts of gsm8k;"));
  }
  // Where there is little to draw, the rest says why.
  tests::SyntheticRun bare;
  bare.key = "plain";
  bare.arms = {run_.arms.front()};
  run_ = bare;
  scratch_.write("plain.html", page(tests::fill(store_, run_)));
  const tests::ProgramResult plain = dump(scratch_.file("plain.html"));
  EXPECT_THAT(plain.err, Not(HasSubstr("CONSOLE")));
  EXPECT_THAT(plain.out, HasSubstr("no method was measured against plain decoding"));
  EXPECT_THAT(plain.out, HasSubstr("No method drafted anything here."));
  EXPECT_THAT(plain.out, HasSubstr("The run stored no table of row costs."));
  EXPECT_EQ(count(plain.out, "<canvas[^>]* data-drawn=\"yes\""), 4) << "why, quality, timeline (2)";
  // A script that fails and a picture from elsewhere would be seen.
  std::string broken = base::read_file(file);
  exchange(broken, "img-src data:", "img-src *");
  exchange(broken, "<main>", "<main><img src=\"http://nowhere.invalid/x.png\">");
  exchange(broken, "drawAll();\nmatchMedia", "drawNil();\nmatchMedia");
  scratch_.write("broken.html", broken);
  EXPECT_THAT(dump(scratch_.file("broken.html")).err, HasSubstr("CONSOLE"));
  EXPECT_GT(requests(), 0);
}

TEST_F(PageTest, PublishedFiguresHaveASection) {
  const int64_t id = full_run();
  const std::string html = page(id);
  const std::string section = html.substr(html.find("<section id=\"claims\">"));
  EXPECT_THAT(section, HasSubstr("<summary>gsm8k</summary>"));
  EXPECT_THAT(section, HasSubstr("2.40 + the bonus token"));
  EXPECT_THAT(section, HasSubstr("q: Table &lt;1&gt;"));
  EXPECT_THAT(section, HasSubstr("A&amp;100"));
  EXPECT_THAT(section, HasSubstr("above; flagged: speedup_tau"));
  EXPECT_THAT(section, HasSubstr("Left out: 4 published figures of greedy decoding"));
  // pld:k=4,ngram=2 accepts 3, 1, 0, 2 in turn: speedup 2.11 of the published 3.60.
  EXPECT_THAT(section, HasSubstr("<td>3.60</td><td>0.59</td>"));
  const Report r = build_report(store_, id);
  EXPECT_EQ(to_html(r, store_).find("id=\"claims\""), std::string::npos);
  const PublishedVsMeasured none = compare_with_claims(r, claims_of({}));
  EXPECT_THAT(to_html(r, store_, &none), HasSubstr("has no published figure for these methods"));
}

TEST_F(PageTest, LatexSaysWhatWasMeasured) {
  std::string text = to_latex(build_report(store_, full_run()));
  EXPECT_THAT(text, HasSubstr("booktabs"));
  EXPECT_THAT(text, HasSubstr("tiny-model (f32), 4 prompts on Some CPU, cpu (avx512), 2 threads, "
                              "greedy decoding"));
  EXPECT_THAT(
      text, HasSubstr("\\emph{Not lossless, and not to be ranked with the rows above}} \\\\\n    " +
                      escape_latex(kNasty) + " &"));
  EXPECT_THAT(text, HasSubstr("\\label{tab:evalrun-samples-chat}"));
  // Every line of a table has as many cells as its columns; a figure and its interval are two.
  const std::string tables = text.substr(text.find("\\begin{tabular}"));
  size_t columns = 0, lines = 0;
  for (const std::string& line : base::split(tables, '\n')) {
    if (line.find("\\begin{tabular}{") != line.npos) {
      const std::string spec = std::regex_replace(line.substr(line.find("tabular}{") + 9),
                                                  std::regex(R"(@\{ \}|p\{[^}]*\})"), "");
      columns = static_cast<size_t>(
          std::count_if(spec.begin(), spec.end(), [](char c) { return c == 'l' || c == 'r'; }));
    }
    if (!line.starts_with("    ") || !line.ends_with(" \\\\") ||
        line.find("\\multicolumn") != line.npos)
      continue;
    const std::string cells = std::regex_replace(line, std::regex(R"(\\&)"), "");
    EXPECT_EQ(static_cast<size_t>(std::count(cells.begin(), cells.end(), '&')) + 1, columns)
        << line;
    ++lines;
  }
  EXPECT_GT(lines, 10u);
}

}  // namespace
}  // namespace evalrun::reports
