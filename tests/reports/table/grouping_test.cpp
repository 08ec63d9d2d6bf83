// Groups side by side against the reports they come from, and mean and deviation by hand.
#include "reports/table/grouping.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "results/regroup.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::Axis;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class GroupingTest : public ReportTest {
 protected:
  // A run of its own whose arms decode `model`, steps of its methods `slower` times as long.
  int64_t fill_model(const std::string& model, double slower) {
    run_.key = model;
    run_.change = [slower](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int,
                           int) {
      if (a.role != "method") return;
      for (auto& t : g.turns)
        t.decode_ns = static_cast<int64_t>(slower * static_cast<double>(t.decode_ns));
    };
    const int64_t id = tests::fill(store_, run_);
    store_.execute("UPDATE arm SET model = ? WHERE run_id = ?", {model, id});
    return id;
  }
  const GroupedRow& row(const GroupedTable& t, const std::string& figure) {
    for (const GroupedRow& r : t.rows)
      if (r.figure == figure) return r;
    throw std::runtime_error("no " + figure);
  }
  static std::string message(const std::function<void()>& f) {
    try {
      f();
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      return e.message();
    }
    return "";
  }
};

TEST_F(GroupingTest, ModelsSideBySide) {
  run_.tasks = {"gsm8k", "xsum"};
  const Report a = build_report(store_, fill_model("small", 1.0));
  const Report b = build_report(store_, fill_model("large", 2.0));
  const GroupedReport grouped = group_by_run({a, b});
  ASSERT_EQ(grouped.tables.size(), 3u);
  EXPECT_EQ(grouped.tables[2].dataset, "all");
  for (const GroupedTable& t : grouped.tables) {
    EXPECT_THAT(t.groups, ElementsAre("small", "large"));
    ASSERT_EQ(t.rows.size(), 3u) << "one method, three figures; plain decoding is left out";
    const GroupedRow& speedup = row(t, "speedup");
    const double x = *ReportTest::row(a, "pld:k=4", t.dataset).speed.speedup;
    EXPECT_DOUBLE_EQ(*speedup.cells[0].value, x);
    EXPECT_NEAR(*speedup.cells[1].value, x / 2, 1e-6);
    EXPECT_NEAR(*speedup.mean, 0.75 * x, 1e-6);
    EXPECT_NEAR(*speedup.sd, 0.5 * x / std::sqrt(2.0), 1e-6);
    EXPECT_EQ(speedup.cells[0].interval->lo,
              ReportTest::row(a, "pld:k=4", t.dataset).speed.interval->lo);
    EXPECT_THAT(to_text(grouped), HasSubstr("Brackets: 95 % interval"));
    EXPECT_EQ(*row(t, "tau").sd, 0.0);
    EXPECT_DOUBLE_EQ(*row(t, "alpha_draft").mean,
                     *ReportTest::row(a, "pld:k=4", t.dataset).acceptance.alpha_draft);
  }
}

TEST_F(GroupingTest, OfManyPromptsNothingIsIndicative) {
  run_.prompts_per_task = 30;
  const Report a = build_report(store_, fill_model("small", 1.0));
  const Report b = build_report(store_, fill_model("large", 2.0));
  EXPECT_THAT(to_text(group_by_run({a, b})), ::testing::Not(HasSubstr("indicative")));
}

TEST_F(GroupingTest, WhatAModelLacksIsInNoMean) {
  const Report a = build_report(store_, fill_model("small", 1.0));
  run_.tasks = {"xsum"};
  run_.arms.back().label = "pld:k=2";
  const Report b = build_report(store_, fill_model("large", 1.0));
  const GroupedReport grouped = group_by_run({a, b});
  ASSERT_EQ(grouped.tables.size(), 2u) << "neither run has several data sets to pool";
  const GroupedRow& only = row(grouped.tables[0], "speedup");
  EXPECT_EQ(grouped.tables[0].dataset, "gsm8k");
  EXPECT_FALSE(only.cells[1].value.has_value());
  EXPECT_EQ(only.n_groups, 1);
  EXPECT_EQ(*only.mean, *only.cells[0].value);
  EXPECT_FALSE(only.sd.has_value());
  EXPECT_THAT(to_text(grouped), HasSubstr("(1 of 2)"));
}

TEST_F(GroupingTest, RunsOfOneModelAreToldApartByNumber) {
  const Report a = build_report(store_, fill_model("small", 1.0));
  run_.label = "again";
  run_.key = "again";
  const Report b = build_report(store_, tests::fill(store_, run_));
  store_.execute("UPDATE arm SET model = 'small'");
  const Report again = build_report(store_, b.run.id);
  EXPECT_THAT(group_by_run({a, again}).tables[0].groups,
              ElementsAre("small (run 1)", "small (run 2)"));
  EXPECT_THAT(message([&] { group_by_run({a, a}); }), HasSubstr("small (run 1)"));
  EXPECT_THAT(message([&] { group_by_run({a}); }), HasSubstr("one model"));
}

// Runs of one model in several engine modes: columns are named by what differs, and speeds stand
// beside the ratios.
TEST_F(GroupingTest, SettingsSideBySide) {
  const int64_t first = fill_model("small", 1.0);
  run_.key = "other";
  run_.threads = 1;
  const int64_t second = tests::fill(store_, run_);
  store_.execute("UPDATE arm SET model = 'small'");
  store_.execute("UPDATE arm SET temperature = 0.5 WHERE run_id = ?", {second});
  const Report a = build_report(store_, first), b = build_report(store_, second);
  const GroupedReport grouped = group_by_run({a, b});
  EXPECT_EQ(grouped.axis, "setting");
  const GroupedTable& t = grouped.tables[0];
  EXPECT_THAT(t.groups, ElementsAre("threads=2, temperature=0", "threads=1, temperature=0.5"));
  const GroupedRow& plain = row(t, "tok_s");
  EXPECT_EQ(plain.method, "ar");
  EXPECT_EQ(*plain.cells[1].value, *ReportTest::row(b, "ar", "gsm8k").speed.tok_s);
  EXPECT_EQ(row(t, "speedup").method, "pld:k=4") << "plain decoding has a speed only";
  EXPECT_THAT(to_text(grouped), HasSubstr("tok_s: tokens per second of decoding"));
  run_.key = "third";
  const int64_t third = fill_model("large", 1.0);
  const GroupedReport three = group_by_run({a, b, build_report(store_, third)});
  EXPECT_EQ(three.axis, "model, setting");
  EXPECT_THAT(three.tables[0].groups[2], HasSubstr("large, threads=1"));
}

TEST_F(GroupingTest, PartsOfADataSet) {
  const int64_t id = tests::fill(store_, run_);
  store_.execute(
      "UPDATE prompt SET category = CASE WHEN id % 2 THEN 'math' ELSE 'prose' END, "
      "language = CASE WHEN id < 3 THEN 'de' ELSE '' END");
  const auto parts = results::regrouped(store_, {Axis::kCategory});
  const Report cut = build_report(*parts, id);
  const GroupedReport grouped = group_by_part(cut, "category");
  ASSERT_EQ(grouped.tables.size(), 1u);
  EXPECT_EQ(grouped.tables[0].dataset, "gsm8k");
  EXPECT_THAT(grouped.tables[0].groups, ElementsAre("math", "prose"));
  const double x = *ReportTest::row(cut, "pld:k=4", "gsm8k / math").speed.speedup;
  const double y = *ReportTest::row(cut, "pld:k=4", "gsm8k / prose").speed.speedup;
  EXPECT_NE(x, y);
  EXPECT_DOUBLE_EQ(*row(grouped.tables[0], "speedup").mean, (x + y) / 2);
  EXPECT_NEAR(*row(grouped.tables[0], "speedup").sd, std::fabs(x - y) / std::sqrt(2.0), 1e-12);
  // Two axes: every combination is a column; a prompt without a language is of its category.
  const auto both = results::regrouped(store_, {Axis::kCategory, Axis::kLanguage});
  EXPECT_THAT(group_by_part(build_report(*both, id), "category, language").tables[0].groups,
              ElementsAre("math / de", "prose / de", "math", "prose"));
  const auto language = results::regrouped(store_, {Axis::kLanguage});
  EXPECT_THAT(group_by_part(build_report(*language, id), "language").tables[0].groups,
              ElementsAre("de", "-"));
  EXPECT_THAT(message([&] { group_by_part(build_report(store_, id), "category"); }),
              HasSubstr("no prompt of this run has a category"));
}

// Under every table of groups, too, figures of an arm that knows test prompts are marked.
TEST_F(GroupingTest, ArmsTrainedOnTestPromptsAreMarked) {
  const auto by_category = [&](int64_t id) {
    store_.execute("UPDATE prompt SET category = CASE WHEN id % 2 THEN 'math' ELSE 'prose' END");
    return group_by_part(build_report(*results::regrouped(store_, {Axis::kCategory}), id),
                         "category");
  };
  const int64_t clean = fill_model("clean", 1.0);
  EXPECT_THAT(to_text(by_category(clean)), Not(HasSubstr("†")));
  run_.arms.back().settings["adapter_overlap"] = R"({"gsm8k":3,"mbpp":1})";
  const int64_t small = fill_model("small", 1.0);
  const GroupedReport parts = by_category(small);
  const std::string note = "†: pld:k=4 was trained on 3 prompts of gsm8k and 1 prompt of mbpp.";
  const std::string text = to_text(parts);
  size_t marks = 0, notes = 0;
  for (size_t at = text.find("pld:k=4 † "); at != text.npos; at = text.find("pld:k=4 † ", at + 1))
    ++marks;
  for (size_t at = text.find(note); at != text.npos; at = text.find(note, at + 1)) ++notes;
  EXPECT_EQ(marks, 3u) << "at its speedup, tau and alpha";
  EXPECT_EQ(notes, 1u);
  EXPECT_THAT(to_markdown(parts), HasSubstr("| pld:k=4 † "));
  EXPECT_THAT(to_latex(parts), HasSubstr("pld:k=4 $^{\\dagger}$ &"));
  EXPECT_THAT(to_latex(parts), HasSubstr("$^{\\dagger}$: pld:k=4 was trained on 3 prompts"));
  EXPECT_THAT(to_csv(parts), HasSubstr(",gsm8k 3;mbpp 1\n"));
  // Of two models each has its own adapter, or none.
  const auto of_models = [&](int64_t other) {
    return group_by_run({build_report(store_, small), build_report(store_, other)});
  };
  const GroupedReport one = of_models(clean);
  EXPECT_THAT(to_text(one), HasSubstr("†: pld:k=4 (small) was trained on 3 prompts of gsm8k"));
  EXPECT_THAT(to_text(one), Not(HasSubstr("(clean) was trained")));
  const auto json = nlohmann::json::parse(to_json(one));
  const auto& groups = json["tables"][0]["rows"][0]["groups"];
  EXPECT_EQ(groups[0]["training_overlap"].dump(), R"({"gsm8k":3,"mbpp":1})");
  EXPECT_TRUE(groups[1]["training_overlap"].is_null());
  EXPECT_THAT(to_csv(one), HasSubstr(",\n")) << "the other model's has none";
  run_.arms.back().settings["adapter_overlap"] = R"({"xsum":2})";
  EXPECT_THAT(to_text(of_models(fill_model("large", 1.0))),
              HasSubstr("1 prompt of mbpp; pld:k=4 (large) was trained on 2 prompts of xsum."));
}

TEST_F(GroupingTest, Formats) {
  run_.arms.back().label = "pld|k";
  const GroupedReport grouped = group_by_run({build_report(store_, fill_model("a_1", 1.0)),
                                              build_report(store_, fill_model("b, c", 2.0))});
  const auto json = nlohmann::json::parse(to_json(grouped));
  EXPECT_EQ(json["group_by"], "model");
  EXPECT_EQ(json["runs"].size(), 2u);
  const auto& speedup = json["tables"][0]["rows"][0];
  EXPECT_EQ(speedup["figure"], "speedup");
  EXPECT_EQ(speedup["groups"][1]["group"], "b, c");
  EXPECT_LT(speedup["groups"][1]["lo"].get<double>(), speedup["groups"][1]["hi"].get<double>());
  EXPECT_EQ(speedup["n_groups"], 2);
  const std::string csv = to_csv(grouped);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 3 * 2);
  EXPECT_THAT(csv, HasSubstr("gsm8k,speedup,pld|k,model,\"b, c\","));
  EXPECT_THAT(to_markdown(grouped), HasSubstr("| pld\\|k         |"));
  EXPECT_THAT(to_text(grouped), HasSubstr("mean ± sd"));
  EXPECT_THAT(to_text(grouped), HasSubstr("*: from fewer than 20 prompts"));
  const std::string latex = to_latex(grouped);
  EXPECT_THAT(
      latex,
      HasSubstr(
          "method & \\multicolumn{2}{c}{a\\_1} & \\multicolumn{2}{c}{b, c} & mean $\\pm$ sd \\\\"));
  EXPECT_THAT(latex, HasSubstr("\\label{tab:evalrun-gsm8k-by-model}"));
  EXPECT_EQ(latex.find("±"), std::string::npos);
}

}  // namespace
}  // namespace evalrun::reports
