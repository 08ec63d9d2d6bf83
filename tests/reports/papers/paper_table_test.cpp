// A synthetic run in the form of papers' tables. pld-like arms have speedup 2.11, tau 152/60 and
// alpha_share 93/152 on gsm8k (report_test).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "engine/base/error.h"
#include "reports/papers/table.h"
#include "tests/reports/claims/claims_fixture.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PaperTableTest : public ReportTest {
 protected:
  // Arms as pld, under these labels.
  void set_arms(const std::vector<std::string>& labels) {
    tests::SyntheticArm drafting = tests::usual_arms()[2];
    run_.arms = {tests::usual_arms()[0]};
    for (const std::string& label : labels) {
      drafting.label = label;
      drafting.method = label.substr(0, label.find(':'));
      run_.arms.push_back(drafting);
    }
  }
  int64_t fill() {
    const int64_t id = tests::fill(store_, run_);
    // As MethodParams::canonical writes them.
    store_.execute(
        "UPDATE arm SET params = substr(label, instr(label, ':') + 1) WHERE instr(label, ':') > 0");
    return id;
  }
  std::vector<PaperTable> tables(const std::string& name, const Claims& claims = {}) {
    const int64_t id = fill();
    run_.key += "+";
    return paper_tables(store_, id, {}, find_paper_forms(name), claims);
  }
  static std::vector<std::string> labels(const PaperTable& t) {
    std::vector<std::string> out;
    for (const PaperRow& r : t.rows) out.push_back(r.model + "/" + r.label + "/" + r.arm);
    return out;
  }
};

TEST_F(PaperTableTest, RowsAreThePapersInItsOrder) {
  set_arms({"falcon", "pld"});
  run_.tasks = {"gsm8k", "mt_bench"};
  const auto found =
      tables("falcon:table-1",
             claims_of({"falcon,Table 1,vicuna-7b,gsm8k,,falcon,greedy,speedup,2.92,,,H800,",
                        "falcon,Table 1,vicuna-7b,gsm8k,,pld,greedy,speedup,1.82,,,H800,",
                        "falcon,Table 2,vicuna-7b,gsm8k,,pld,greedy,speedup,9.99,,,H800,",
                        "other,Table 1,vicuna-7b,gsm8k,,pld,greedy,speedup,9.99,,,H800,"}));
  ASSERT_EQ(found.size(), 1u);
  const PaperTable& t = found[0];
  EXPECT_THAT(labels(t),
              ElementsAre("tiny-model/SpS/", "tiny-model/PLD/pld", "tiny-model/Lookahead/",
                          "tiny-model/Medusa/", "tiny-model/Eagle/", "tiny-model/Falcon/falcon",
                          "vicuna-7b/PLD/", "vicuna-7b/Falcon/"));
  ASSERT_EQ(t.columns.size(), 3u);
  EXPECT_EQ(t.columns[2].group, "GSM8K");
  EXPECT_NEAR(*t.rows[1].cells[2].value, 1.52 / 0.72, 1e-9);
  EXPECT_TRUE(t.rows[1].cells[2].interval.has_value());
  EXPECT_FALSE(t.rows[1].cells[1].value) << "HumanEval was not measured";
  EXPECT_EQ(t.rows[7].cells[2].printed, "2.92");
  const std::string text = to_text(found);
  EXPECT_THAT(text, HasSubstr("Falcon, Table 1: speedup, greedy\n----"));
  EXPECT_THAT(text, HasSubstr("tiny-model (measured)"));
  EXPECT_THAT(text, HasSubstr("Published: Table 1 of test.csv, on H800. Other models"));
  EXPECT_THAT(text, HasSubstr("docs/measurement.md#speedup"));
  EXPECT_THAT(text, Not(HasSubstr("9.99")));
}

TEST_F(PaperTableTest, FiguresAreInThePapersConvention) {
  set_arms({"falcon", "self_draft"});
  run_.tasks = {"mt_bench"};
  const auto tau = tables("falcon:table-3");
  EXPECT_NEAR(*tau[0].rows[2].cells[0].value, 93.0 / 60, 1e-9) << "without the bonus token";
  const auto alpha = tables("falcon:table-2");
  EXPECT_NEAR(*alpha[0].rows[2].cells[0].value, 100 * 93.0 / 152, 1e-9);
  const auto gain = tables("self_draft:table-2")[0];
  ASSERT_THAT(labels(gain), ElementsAre("tiny-model/GSM-100/", "tiny-model/MT-Bench/",
                                        "tiny-model/MBPP-100/", "tiny-model/HumanEval/"));
  const std::vector<PaperCell>& cells = gain.rows[1].cells;
  EXPECT_NEAR(*cells[0].value, 100, 1e-6) << "AR, tokens per second";
  EXPECT_NEAR(*cells[4].value, 100 * (1.52 / 0.72 - 1), 1e-6) << "Self-Draft, gain in percent";
  EXPECT_LT(cells[4].interval->lo, *cells[4].value);
  EXPECT_GT(cells[4].interval->hi, *cells[4].value);
  EXPECT_NEAR(*cells[5].value, 152.0 / 60, 1e-9);
}

TEST_F(PaperTableTest, OneModelMakesColumns) {
  set_arms({"bita:tree=full:1,groups=all", "bita:tree=efficient:5,groups=all"});
  run_.tasks = {"mt_bench"};
  const auto t = tables(
      "bita:table-4",
      claims_of(
          {"bita,Table "
           "4,llama-2-7b-chat,mt_bench,overall,bita,k=1;tree=full;greedy,speedup,2.04,,,A,",
           "bita,Table "
           "4,llama-2-7b-chat,mt_bench,overall,bita,k=2;tree=full;greedy,speedup,2.23,,,A,",
           "bita,Table "
           "4,llama-2-7b-chat,mt_bench,overall,bita,tree=full;versus=x,speedup,0.1,,,A,"}))[0];
  ASSERT_EQ(t.columns.size(), 3u) << "XSum: measured only, nothing is published for it";
  EXPECT_EQ(t.columns[2].model, "llama-2-7b-chat");
  ASSERT_EQ(t.rows.size(), 6u);
  EXPECT_EQ(t.rows[1].label, "full, k = 1");
  EXPECT_TRUE(t.rows[1].cells[1].value);
  EXPECT_EQ(t.rows[1].cells[2].printed, "2.04");
  EXPECT_FALSE(t.rows[2].cells[1].value) << "not measured";
  EXPECT_EQ(t.rows[2].cells[2].printed, "2.23");
  EXPECT_THAT(to_text(std::vector<PaperTable>{t}), HasSubstr("MT-Bench, llama-2-7b-chat"));
}

TEST_F(PaperTableTest, SweepsAreRowsByValue) {
  set_arms({"space:k=12", "space:k=2", "space"});
  run_.tasks = {"mt_bench"};
  const auto t = tables(
      "space:figure-6",
      claims_of({"space,Figure 6,llama-2-7b,mt_bench,,space,k=5;greedy,speedup,2.2,,,A,"}))[0];
  std::vector<std::string> names;
  for (const PaperRow& r : t.rows) names.push_back(r.label);
  EXPECT_THAT(names, ElementsAre("trained for k = 3, k = 2", "trained for k = 3, k = 5",
                                 "trained for k = 3, k = 12", "trained for k = 20, k = 5"));
  EXPECT_EQ(t.rows[1].cells[1].printed, "2.2");
  EXPECT_FALSE(t.rows[1].cells[0].value);
  EXPECT_TRUE(t.rows[2].cells[0].value);
}

TEST_F(PaperTableTest, TwoSweptParametersMakeAGrid) {
  set_arms({"self_draft:branches=2,length=5", "self_draft:branches=2,length=7",
            "self_draft:branches=10,length=5"});
  run_.tasks = {"mt_bench"};
  const auto t = tables("self_draft:figure-6")[0];
  ASSERT_EQ(t.columns.size(), 2u);
  EXPECT_EQ(t.columns[1].label, "length = 7");
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.rows[1].label, "branches = 10");
  EXPECT_TRUE(t.rows[0].cells[1].value);
  EXPECT_FALSE(t.rows[1].cells[1].value);
  set_arms({"self_draft:branches=2,length=5"});
  EXPECT_THROW(tables("self_draft:figure-6"), base::Error) << "one point is no figure";
}

TEST_F(PaperTableTest, CategoriesAreCutOutOfTheWhole) {
  set_arms({"space"});
  run_.tasks = {"mt_bench"};
  const int64_t id = fill();
  store_.execute("UPDATE prompt SET category = CASE id % 2 WHEN 0 THEN 'coding' ELSE 'math' END");
  const auto t = paper_tables(store_, id, {}, find_paper_forms("space:table-4"), {})[0];
  ASSERT_EQ(t.columns.size(), 9u);
  const std::vector<PaperCell>& cells = t.rows[0].cells;
  EXPECT_TRUE(cells[0].value);
  EXPECT_EQ(cells[0].n_prompts, 2);
  EXPECT_FALSE(cells[1].value) << "extraction";
  EXPECT_TRUE(cells[3].value);
  EXPECT_EQ(cells[8].n_prompts, 4) << "overall";
}

TEST_F(PaperTableTest, LossyArmsStandBehind) {
  set_arms({"space:k=3,sampling=as_published", "space:k=3"});
  for (tests::SyntheticArm& arm : run_.arms) arm.temperature = 1;
  run_.arms[1].lossless = "none";
  run_.tasks = {"xsum"};
  const auto found = tables("space:table-5");
  ASSERT_EQ(found[0].rows.size(), 2u);
  EXPECT_FALSE(found[0].rows[0].lossy);
  EXPECT_TRUE(found[0].rows[1].lossy);
  EXPECT_THAT(to_text(found), HasSubstr("SPACE (not lossless)"));
  EXPECT_THAT(to_latex(found), HasSubstr("SPACE (not lossless)"));
  EXPECT_EQ(json::parse(to_json(found)).back()["lossy"], true);
  // Sampling is in no table of greedy decoding.
  EXPECT_THROW(tables("space:table-1"), base::Error);
}

TEST_F(PaperTableTest, DoubtfulFiguresAreMarked) {
  set_arms({"falcon"});
  run_.tasks = {"gsm8k"};
  const auto found = tables(
      "falcon:table-3",
      claims_of(
          {"falcon,Table "
           "3,vicuna-7b,gsm8k,,eagle1,greedy,tau_without_bonus,4.00,,,H800,doubt=bonus_counted; x",
           "falcon,Table 2,vicuna-7b,gsm8k,,eagle1,greedy,alpha_share,75.47,,percent,H800,"}));
  const std::string text = to_text(found);
  EXPECT_THAT(text, HasSubstr("4.00 !"));
  EXPECT_THAT(text, HasSubstr("evalrun audit: alpha_tau"));
  EXPECT_THAT(text, HasSubstr("doubt=bonus_counted (1)"));
  EXPECT_THAT(to_latex(found), HasSubstr("4.00 !"));
}

TEST_F(PaperTableTest, PlainDecodingStandsInBrackets) {
  run_.arms = tests::arms_with_a_tuned_target();
  run_.tasks = {"xsum"};
  const int64_t id = fill();
  store_.execute("UPDATE score SET evaluator = 'rougeL'");
  const auto t = paper_tables(
      store_, id, {}, find_paper_forms("space:table-1"),
      claims_of({"space,Table 1,qwen-14b,xsum,,space,k=5;greedy,rouge_l,17.2,,percent,A,",
                 "space,Table 1,qwen-14b,xsum,,ar,greedy,rouge_l,17.1,,percent,A,"}));
  const std::string text = to_text(t);
  EXPECT_THAT(text, HasSubstr("17.2 (17.1)"));
  ASSERT_TRUE(t[0].rows[0].cells[0].plain.has_value());
  EXPECT_EQ(*t[0].rows[0].cells[0].plain, *t[0].rows[0].cells[0].value) << "the tuned target's own";
}

TEST_F(PaperTableTest, WhatCannotBeMadeIsSaid) {
  set_arms({"lookahead:window=4"});
  run_.tasks = {"mt_bench"};
  try {
    tables("falcon:table-1");
    FAIL() << "no arm of the table was measured";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("has nothing for falcon:table-1"));
    EXPECT_THAT(e.what(), HasSubstr("evalrun run paper-falcon"));
    EXPECT_THAT(e.what(), HasSubstr("pld"));
  }
  set_arms({"falcon"});
  EXPECT_THAT(to_text(tables("falcon:table-1")), HasSubstr("--claims FILE"));
  EXPECT_THAT(to_text(tables("falcon:table-1", claims_of({"q,t,,gsm8k,,pld,,speedup,2,,,,"}))),
              HasSubstr("test.csv has no figures of falcon, Table 1."));
}

TEST_F(PaperTableTest, EveryFormatHoldsTheFigures) {
  set_arms({"falcon", "pld"});
  run_.tasks = {"gsm8k", "mt_bench"};
  const auto found =
      tables("falcon:table-1",
             claims_of({"falcon,Table 1,vicuna-7b,gsm8k,,falcon,greedy,speedup,2.92,,,H800,"}));
  EXPECT_THAT(to_markdown(found), HasSubstr("[GSM8K](docs/measurement.md#speedup)"));
  EXPECT_THAT(to_markdown(found), HasSubstr("2.11 ["));
  const std::string tex = to_latex(found);
  EXPECT_THAT(tex, HasSubstr("\\label{tab:evalrun-falcon-table-1}"));
  EXPECT_THAT(tex, HasSubstr("vicuna-7b & Falcon & -- &  & -- & 2.92 &  \\\\"));
  const std::regex line(R"(\n    ([^\\\n][^\n]*) \\\\)");
  int lines = 0;
  for (auto it = std::sregex_iterator(tex.begin(), tex.end(), line); it != std::sregex_iterator();
       ++it, ++lines) {
    const std::string cells = (*it)[1];
    const bool header = cells.starts_with("model");  // an interval has a column of its own
    EXPECT_EQ(std::count(cells.begin(), cells.end(), '&'), header ? 4 : 6) << cells;
  }
  EXPECT_EQ(lines, 1 + 6 + 1) << "header, measured, published";
  const json figures = json::parse(to_json(found));
  ASSERT_EQ(figures.size(), 5u);
  EXPECT_EQ(figures[4]["kind"], "published");
  EXPECT_EQ(figures[4]["value"], 2.92);
  const std::string csv = to_csv(found);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 6);
  EXPECT_THAT(csv, HasSubstr("falcon,table-1,Falcon,GSM8K,speedup,published,vicuna-7b,"));
}

// Every figure that the collection has of a table, and none twice.
TEST_F(PaperTableTest, TheCollectionFillsTheTables) {
  if (published_claims().empty()) GTEST_SKIP() << "no collection of published figures";
  const Claims claims = read_claims(published_claims());
  run_.prompts_per_task = 2;
  run_.tokens = 9;
  run_.tasks = {"xsum",      "mt_bench", "cip",     "humaneval_x[python]",
                "humaneval", "gsm8k",    "gsm_100", "mbpp_100"};
  std::vector<std::string> arms;
  for (const PaperForm& form : paper_forms())
    for (const FormMethod& m : form.methods)
      if (form.table.starts_with("table") && !m.arms.empty() && m.arms[0] != "ar" &&
          std::find(arms.begin(), arms.end(), m.arms[0]) == arms.end())
        arms.push_back(m.arms[0]);
  for (const char* decoding : {"greedy", "sampled"}) {
    set_arms(arms);
    run_.key = decoding;
    for (tests::SyntheticArm& arm : run_.arms) arm.temperature = *decoding == 's' ? 1 : 0;
    const int64_t id = fill();
    store_.execute("UPDATE prompt SET category = 'coding' WHERE task = 'mt_bench'");
    for (const PaperForm& form : paper_forms()) {
      if (form.decoding != decoding || !form.table.starts_with("table")) continue;
      size_t wanted = 0, printed = 0;
      for (const Claim& c : claims.rows)
        wanted += c.paper == form.paper && c.place == form.place && c.value && c.measured() ? 1 : 0;
      for (const PaperTable& t : paper_tables(store_, id, {}, {&form}, claims))
        for (const PaperRow& r : t.rows)
          for (const PaperCell& c : r.cells)
            printed += (c.printed.empty() ? 0 : 1) + (c.printed_plain.empty() ? 0 : 1);
      EXPECT_EQ(printed, wanted) << form.name();
    }
  }
}

}  // namespace
}  // namespace evalrun::reports
