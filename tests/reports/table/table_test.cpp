// What stands in a report beside the figures: memory, parts of data sets, colours, marks.
#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

#include "reports/figures/parts.h"
#include "reports/format.h"
#include "reports/html/html_data.h"
#include "reports/table/arm_tables.h"
#include "results/regroup.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TableTest : public ReportTest {};

TEST(Bracket, AnUpperEndThatSaysNothingIsNoNumber) {
  EXPECT_EQ(bracket({0.9, 1.25}, 2), "[0.90, 1.25]");
  EXPECT_EQ(bracket({-1e7, 1e6}, 1), "[-10000000.0, 1000000.0]");
  EXPECT_EQ(bracket({0, 2.7e21}, 3), "[0.000, >1e6]");
  EXPECT_EQ(bracket({0, std::numeric_limits<double>::infinity()}, 2), "[0.00, >1e6]");
}

TEST_F(TableTest, MemoryIsPerArm) {
  run_.tasks = {"gsm8k", "samples_chat"};
  const int64_t id = tests::fill(store_, run_);
  store_.execute(
      "UPDATE arm SET weight_bytes = 269100288, kv_bytes = 54558720, "
      "peak_bytes = 1885011968");
  store_.execute("UPDATE arm SET extra_parameter_bytes = 8264448 WHERE method = 'pld'");
  const Report r = build_report(store_, id);
  const Table t = memory_table(r);
  ASSERT_EQ(t.rows.size(), 2u) << "once each, A/A left out";
  std::vector<std::string> cells;
  for (const Cell& cell : t.rows[0]) cells.push_back(cell.plain());
  EXPECT_EQ(cells, (std::vector<std::string>{"ar", "269 MB", "-", "54.6 MB", "1.89 GB"}));
  EXPECT_EQ(t.rows[1][2].plain(), "8.26 MB");
  for (const std::string& text : {to_text(r), to_markdown(r), to_latex(r), to_html(r, store_)})
    EXPECT_THAT(text, HasSubstr("8.26 MB"));
}

// The same figures as a report of the parts.
TEST_F(TableTest, PartsAreTheRegroupedReports) {
  run_.prompts_per_task = 6;
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                   int) {
    if (a.role == "method") g.turns[0].decode_ns += 2'000'000 * prompt;
  };
  const int64_t id = tests::fill(store_, run_);
  store_.execute("UPDATE prompt SET category = CASE id % 3 WHEN 0 THEN 'math' ELSE 'prose' END");
  const Report r = build_report(store_, id, {.parts = true});
  ASSERT_EQ(r.parts.size(), 2u);
  const auto regrouped = results::regrouped(store_, {results::Axis::kCategory});
  const Report by_category = build_report(*regrouped, id);
  for (const PartSpeed& p : r.parts) {
    const ReportRow& same = row(by_category, p.arm, p.dataset + " / " + p.part);
    EXPECT_DOUBLE_EQ(p.speedup, *same.speed.speedup);
    EXPECT_DOUBLE_EQ(p.interval->lo, same.speed.interval->lo);
    EXPECT_DOUBLE_EQ(*p.tau, *same.acceptance.tau);
    EXPECT_EQ(p.n_prompts, same.counts.prompts);
  }
  store_.execute("UPDATE prompt SET category = 'all the same'");
  EXPECT_TRUE(build_report(store_, id, {.parts = true}).parts.empty()) << "one part is the whole";
}

TEST_F(TableTest, ColoursMarkTheBestThatMayBeRanked) {
  tests::SyntheticArm faster = run_.arms.back();
  faster.label = "pld:k=5";
  faster.verify_ns = 8'000'000;
  run_.arms.push_back(faster);
  faster.label = "fastest";
  faster.lossless = "none";
  faster.verify_ns = 5'000'000;
  run_.arms.push_back(faster);
  const Report r = report();
  const std::string plain = to_text(r), coloured = to_text(r, true);
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  EXPECT_EQ(std::regex_replace(coloured, std::regex("\033\\[[0-9;]*m"), ""), plain);
  const std::regex bold("([^\n ]+) [^\n\033]*\033\\[1m([^\033]*)\033\\[0m");
  std::vector<std::string> marked;
  for (auto it = std::sregex_iterator(coloured.begin(), coloured.end(), bold);
       it != std::sregex_iterator(); ++it)
    marked.push_back((*it)[1]);
  EXPECT_EQ(marked, std::vector<std::string>{"pld:k=5"});
}

TEST_F(TableTest, ArmsTrainedOnTestPromptsAreMarked) {
  run_.tasks = {"gsm8k", "xsum"};
  const int64_t id = tests::fill(store_, run_);
  const auto stored = [&](const std::string& settings) {
    store_.execute("UPDATE arm SET settings = ? WHERE label = 'pld:k=4'", {settings});
    return build_report(store_, id);
  };
  // Without an adapter, with one that states nothing, and with one that cannot be read.
  for (const char* clean : {"{}", R"({"adapter":"abc"})",
                            R"({"adapter":"abc","adapter_overlap":"{\"gsm8k\":\"many\"}"})",
                            R"({"adapter":"abc","adapter_overlap":"3"})"}) {
    const Report r = stored(clean);
    EXPECT_THAT(to_text(r), Not(HasSubstr("†"))) << clean;
    for (const auto& figures : nlohmann::json::parse(to_json(r)))
      EXPECT_TRUE(figures.at("training_overlap").is_null()) << clean;
  }
  const Report r = stored(R"({"adapter":"abc","adapter_overlap":"{\"gsm8k\":3,\"mbpp\":1}"})");
  const std::string note = "†: pld:k=4 was trained on 3 prompts of gsm8k and 1 prompt of mbpp.";
  const std::string text = to_text(r);
  size_t marks = 0, notes = 0;
  for (size_t at = text.find("pld:k=4 † "); at != text.npos; at = text.find("pld:k=4 † ", at + 1))
    ++marks;
  for (size_t at = text.find(note); at != text.npos; at = text.find(note, at + 1)) ++notes;
  EXPECT_EQ(marks, 3u) << "once in the comparison of each data set, and of all";
  EXPECT_EQ(notes, 3u) << "under each of these tables";
  EXPECT_THAT(text, Not(HasSubstr("ar †")));
  EXPECT_THAT(to_markdown(r), HasSubstr("| pld:k=4 † "));
  EXPECT_THAT(to_html(r, store_), HasSubstr("pld:<wbr>k=4 †"));
  EXPECT_THAT(to_html(r, store_), HasSubstr(note));
  EXPECT_THAT(to_latex(r), HasSubstr("pld:k=4 $^{\\dagger}$ &"));
  EXPECT_THAT(to_latex(r), HasSubstr("$^{\\dagger}$: pld:k=4 was trained on 3 prompts"));
  for (const auto& figures : nlohmann::json::parse(to_json(r))) {
    const bool marked = figures.at("method").get<std::string>() == "pld:k=4";
    EXPECT_EQ(figures.at("training_overlap").dump(), marked ? R"({"gsm8k":3,"mbpp":1})" : "null");
  }
  EXPECT_THAT(to_csv(r), HasSubstr(",gsm8k 3;mbpp 1\n"));
  // Its charts and their tables, too.
  const nlohmann::json page = nlohmann::json::parse(html_data(r, store_));
  EXPECT_EQ(page["overlap_note"], note);
  for (const auto& drawn : page["rows"])
    EXPECT_EQ(drawn["training_overlap"].is_null(), drawn["method"].get<std::string>() != "pld:k=4");
}

TEST_F(TableTest, ArmsWhoseFiguresFlatterThemAreMarked) {
  run_.tasks = {"gsm8k"};
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("‡")));
  store_.execute("UPDATE arm SET settings = ? WHERE label = 'pld:k=4'",
                 {std::string(R"({"flatters":"target's weights are 4-bit"})")});
  const Report r = build_report(store_, id);
  const std::string note = "‡: pld:k=4: target's weights are 4-bit: flatters this method.";
  const std::string text = to_text(r);
  EXPECT_THAT(text, HasSubstr("pld:k=4 ‡ "));
  EXPECT_THAT(text, HasSubstr(note));
  EXPECT_THAT(text, Not(HasSubstr("ar ‡")));
  EXPECT_THAT(to_markdown(r), HasSubstr("| pld:k=4 ‡ "));
  EXPECT_THAT(to_html(r, store_), HasSubstr("pld:<wbr>k=4 ‡"));
  EXPECT_THAT(to_latex(r), HasSubstr("pld:k=4 $^{\\ddagger}$ &"));
  EXPECT_THAT(to_latex(r), HasSubstr("flatters this method."));
  for (const auto& figures : nlohmann::json::parse(to_json(r)))
    EXPECT_EQ(figures.at("flatters").dump(),
              figures.at("method") == "pld:k=4" ? R"("target's weights are 4-bit")" : "null");
  EXPECT_THAT(to_csv(r), HasSubstr(",target's weights are 4-bit,"));
  const nlohmann::json page = nlohmann::json::parse(html_data(r, store_));
  EXPECT_EQ(page["flatters_note"], note);
}

}  // namespace
}  // namespace evalrun::reports
