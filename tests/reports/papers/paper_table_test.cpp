// A synthetic run in the form of papers' tables. pld-like arms have speedup 2.11, tau 152/60 and
// alpha_share 93/152 on gsm8k (report_test).
#include <fmt/format.h>
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
  std::vector<PaperTable> tables(const std::string& name, const Claims& claims = {},
                                 UnequalBudgets unequal = UnequalBudgets::kRefuse) {
    const int64_t id = fill();
    run_.key += "+";
    for (const auto& [label, settings] : settings_)
      store_.execute(
          fmt::format("UPDATE arm SET settings = '{}' WHERE label = '{}'", settings.dump(), label));
    return paper_tables(store_, id, {}, find_paper_forms(name), claims, unequal);
  }
  // Arms with an adapter each, as adapter_file() describes it; without updates no budget is stated.
  void set_trained(const std::vector<std::pair<std::string, int>>& labels_and_updates) {
    std::vector<std::string> labels;
    for (const auto& [label, updates] : labels_and_updates) {
      labels.push_back(label);
      settings_[label] = json::object({{"adapter", "hash of " + label}});
      if (updates > 0)
        settings_[label]["adapter_budget"] = json{
            {"text", "3f2a9c01d5e7beef"},
            {"updates", updates},
            {"tokens", 41203},
            {"batch", 4},
            {"recipe", "small"},
            {"optimiser", "AdamW lr 0.01"},
            {"target", "cafe"}}.dump();
    }
    set_arms(labels);
  }
  std::string refusal(const std::string& name) {
    try {
      tables(name);
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      return e.what();
    }
    return "printed";
  }
  static std::vector<std::string> labels(const PaperTable& t) {
    std::vector<std::string> out;
    for (const PaperRow& r : t.rows) out.push_back(r.model + "/" + r.label + "/" + r.arm);
    return out;
  }
  std::map<std::string, json> settings_;  // by label
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
  set_arms({"falcon", "self_draft:corpus=default,geometry=paper,harvest_text=false",
            "self_draft:corpus=default"});
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
  EXPECT_EQ(gain.columns[6].group, "as released");
  EXPECT_FALSE(cells[6].value);
  EXPECT_EQ(gain.columns[8].group, "ours");
  EXPECT_TRUE(cells[8].value);
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
  set_arms({"space:adapter=space-k5,k=12", "space:adapter=space-k5,k=2", "space"});
  run_.tasks = {"mt_bench"};
  const auto t = tables(
      "space:figure-6",
      claims_of({"space,Figure 6,llama-2-7b,mt_bench,,space,k=5;greedy,speedup,2.2,,,A,"}))[0];
  std::vector<std::string> names;
  for (const PaperRow& r : t.rows) names.push_back(r.label);
  EXPECT_THAT(names, ElementsAre("trained for k = 5, k = 2", "trained for k = 5, k = 5",
                                 "trained for k = 5, k = 12", "trained for k = 20, k = 5"));
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
  EXPECT_EQ(t.rows[1].label, "no corpus, branches = 10");
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
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_FALSE(t.rows[0].cells[0].value) << "k = 5, as in the paper";
  const std::vector<PaperCell>& cells = t.rows[1].cells;
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
  ASSERT_EQ(found[0].rows.size(), 3u);
  EXPECT_EQ(found[0].rows[1].label, "SPACE, k = 3");
  EXPECT_FALSE(found[0].rows[1].lossy);
  EXPECT_TRUE(found[0].rows[2].lossy);
  EXPECT_THAT(to_text(found), HasSubstr("SPACE, k = 3 (not lossless)"));
  EXPECT_THAT(to_latex(found), HasSubstr(R"(SPACE,\allowbreak{} k = 3 (not lossless))"));
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
  ASSERT_EQ(t[0].rows[1].arm, "space");
  const PaperCell& cell = t[0].rows[1].cells[0];
  ASSERT_TRUE(cell.plain.has_value());
  EXPECT_EQ(*cell.plain, *cell.value) << "the tuned target's own";
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

// The run was cut off: what is missing is still to be measured, and not by another run.
TEST_F(PaperTableTest, UnfinishedRunsSayHowTheyGoOn) {
  const std::string two = "self_draft:branches=2,geometry=paper,length=2",
                    four = "self_draft:branches=4,geometry=paper,length=2";
  set_arms({two, four});
  run_.tasks = {"mt_bench"};
  const int64_t id = fill();
  store_.execute("UPDATE run SET finished = NULL, command = 'evalrun run sd-extreme --limit 1'");
  const auto made = [&](const std::string& name) {
    return paper_tables(store_, id, {}, find_paper_forms(name), {});
  };
  const auto refused = [&](const std::string& name) -> std::string {
    try {
      made(name);
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      return e.what();
    }
    return "printed";
  };
  // A figure that can be made says what is still to come.
  const auto drop_from = [&](const std::string& arm, int left) {
    store_.execute(
        fmt::format("DELETE FROM generation WHERE arm_id = (SELECT id FROM arm WHERE label = '{}') "
                    "AND prompt_id > (SELECT min(id) FROM prompt) + {}",
                    arm, left - 1));
  };
  drop_from(four, 3);
  EXPECT_THAT(to_text(made("self_draft:figure-7")),
              HasSubstr("Unfinished: 11 of 12 generations are stored; resume it with the build "
                        "that began it"));
  // One arm is no figure.
  drop_from(four, 0);
  EXPECT_THAT(
      refused("self_draft:figure-7"),
      ::testing::AllOf(HasSubstr("run 1 'synthetic' is unfinished: 8 of 12 generations are "
                                 "stored, and these do not suffice for self_draft:figure-7"),
                       HasSubstr("(evalrun 0.1.0, commit 0123456789ab): evalrun run "
                                 "sd-extreme --limit 1"),
                       Not(HasSubstr("it needs one of"))));
  // What the run will never hold has to be measured by another one.
  for (const char* other : {"falcon:table-1", "self_draft:figure-4", "space:table-5"})
    EXPECT_THAT(refused(other), ::testing::AllOf(HasSubstr("has nothing for"), HasSubstr(other),
                                                 Not(HasSubstr("unfinished"))));
  store_.execute("UPDATE prompt SET task = 'gsm8k'");
  EXPECT_THAT(refused("self_draft:figure-7"), HasSubstr("has nothing for"));
  store_.execute("UPDATE prompt SET task = 'mt_bench'");
  store_.execute("UPDATE run SET finished = 'now'");
  EXPECT_THAT(refused("self_draft:figure-7"),
              ::testing::AllOf(HasSubstr("has nothing for"), Not(HasSubstr("unfinished"))));
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

const char* const kNone = "bita:adapter=bita-none,tree=efficient:5,groups=all";
const char* const kShallow = "bita:adapter=bita-shallow,tree=efficient:5,groups=all";
const char* const kDeep = "bita:adapter=bita-deep,tree=efficient:5,groups=all";

TEST_F(PaperTableTest, EqualBudgetsAreTold) {
  run_.tasks = {"xsum", "mt_bench"};
  set_trained({{kNone, 225}, {kShallow, 225}, {kDeep, 225}});
  const auto found = tables("bita:table-8");
  const std::string text = to_text(found);
  EXPECT_THAT(text, HasSubstr("Training of every adapter: 225 updates of batch 4 (41,203 tokens)"));
  EXPECT_THAT(text, HasSubstr("text 3f2a9c01d5e7, recipe small, AdamW lr 0.01"));
  EXPECT_THAT(text, Not(HasSubstr("^")));
  const json figure = json::parse(to_json(found))[0];
  EXPECT_EQ(figure["unequal_budget"], false);
  EXPECT_THAT(figure["budget"].get<std::string>(), HasSubstr("225 updates"));
  // More masks see more tokens of the same text.
  json budget = json::parse(settings_[kDeep]["adapter_budget"].get<std::string>());
  budget["tokens"] = 78380;
  settings_[kDeep]["adapter_budget"] = budget.dump();
  set_arms({kNone, kShallow, kDeep});
  EXPECT_THAT(to_text(tables("bita:table-8")),
              HasSubstr("225 updates of batch 4 (41,203 to 78,380 tokens)"));
  // One adapter is compared with none.
  set_trained({{kDeep, 300}});
  EXPECT_THAT(to_text(tables("bita:table-8")), HasSubstr("Training: 300 updates"));
  set_trained({{kDeep, 0}});
  EXPECT_THAT(to_text(tables("bita:table-8")), HasSubstr("Training: not stated by the adapter."));
}

TEST_F(PaperTableTest, UnequalBudgetsAreRefusedByName) {
  run_.tasks = {"xsum", "mt_bench"};
  run_.environment["model_hash"] = "cafe";
  set_trained({{kNone, 225}, {kShallow, 225}, {kDeep, 1034}});
  EXPECT_THAT(refusal("bita:table-8"),
              ::testing::AllOf(HasSubstr("bita:table-8"),
                               HasSubstr(std::string(kDeep) + ": updates 1034 (elsewhere 225)"),
                               HasSubstr("scripts/train-ablations bita"),
                               HasSubstr("--unequal-budgets"), Not(HasSubstr("bita-shallow"))));
  for (const auto& [key, value, named] :
       std::vector<std::array<std::string, 3>>{{"text", "other", "text other (elsewhere 3f2a9c"},
                                               {"recipe", "paper", "recipe paper"},
                                               {"optimiser", "SGD", "optimiser SGD"},
                                               {"target", "beef", "another model (beef)"}}) {
    set_trained({{kNone, 225}, {kShallow, 225}, {kDeep, 225}});
    json budget = json::parse(settings_[kDeep]["adapter_budget"].get<std::string>());
    budget[key] = value;
    settings_[kDeep]["adapter_budget"] = budget.dump();
    EXPECT_THAT(refusal("bita:table-8"), HasSubstr(named));
  }
  // Also where it is the only one.
  set_trained({{kDeep, 225}});
  run_.environment["model_hash"] = "another";
  EXPECT_THAT(refusal("bita:table-8"), HasSubstr("trained for another model (cafe)"));
  run_.environment["model_hash"] = "cafe";
  // More tokens of equal text and updates are no other budget: masks are counted, not text.
  set_trained({{kNone, 225}, {kDeep, 225}});
  json budget = json::parse(settings_[kDeep]["adapter_budget"].get<std::string>());
  budget["tokens"] = 9;
  settings_[kDeep]["adapter_budget"] = budget.dump();
  EXPECT_EQ(refusal("bita:table-8"), "printed");
  // Tables that compare no adapters have any.
  set_trained({{"falcon", 225}, {"medusa", 0}, {"eagle", 9}});
  run_.tasks = {"gsm8k"};
  EXPECT_EQ(refusal("falcon:table-1"), "printed");
  EXPECT_THAT(
      to_text(tables("falcon:table-1")),
      HasSubstr("Training, not equal: medusa: not stated by the adapter; eagle: 9 updates"));
}

// The other tables of the paper are printed; the last one says what is not there.
TEST_F(PaperTableTest, OfAWholePaperUnequalBudgetsAreLeftOut) {
  run_.tasks = {"xsum", "mt_bench"};
  run_.environment["model_hash"] = "cafe";
  set_trained({{kNone, 225}, {kDeep, 1034}, {"bita:tree=efficient:5,groups=all", 225}});
  const auto names = [](const std::vector<PaperTable>& found) {
    std::vector<std::string> list;
    for (const PaperTable& t : found) list.push_back(t.form->name());
    return list;
  };
  const auto all = names(tables("bita", {}, UnequalBudgets::kMark));
  const auto found = tables("bita", {}, UnequalBudgets::kLeaveOut);
  EXPECT_LT(found.size(), all.size());
  EXPECT_THAT(names(found), Not(::testing::Contains("bita:table-8")));
  EXPECT_THAT(to_text(found),
              HasSubstr("Left out: bita:table-8 compares adapters, and these were not trained like "
                        "the others: " +
                        std::string(kDeep) + ": updates 1034 (elsewhere 225)."));
  // Where no table is left, they are refused, all by name.
  const int64_t id = fill();
  for (const auto& [label, settings] : settings_)
    store_.execute(
        fmt::format("UPDATE arm SET settings = '{}' WHERE label = '{}'", settings.dump(), label));
  try {
    paper_tables(store_, id, {}, find_paper_forms("bita:table-8"), {}, UnequalBudgets::kLeaveOut);
    FAIL() << "printed";
  } catch (const base::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--unequal-budgets"));
  }
}

TEST_F(PaperTableTest, UnknownBudgetsAreRefused) {
  run_.tasks = {"mt_bench"};
  set_trained({{kNone, 225}, {kDeep, 0}});
  EXPECT_THAT(refusal("bita:table-8"),
              HasSubstr(std::string(kDeep) + ": unknown: the adapter states no budget"));
  set_trained({{kNone, 0}, {kDeep, 0}});
  EXPECT_THAT(refusal("bita:table-8"), ::testing::AllOf(HasSubstr(kNone), HasSubstr(kDeep)));
  // Also one that cannot be read.
  set_trained({{kNone, 225}, {kDeep, 225}});
  settings_[kDeep]["adapter_budget"] = R"({"text": 3})";
  EXPECT_THAT(refusal("bita:table-8"), HasSubstr("unknown"));
}

TEST_F(PaperTableTest, UnequalBudgetsAreMarkedWhenAskedFor) {
  run_.tasks = {"xsum", "mt_bench"};
  set_trained({{kNone, 225}, {kShallow, 0}, {kDeep, 1034}, {"bita:tree=full:1,groups=all", 7}});
  // A table of equal budgets where one is the most frequent, or the first.
  const auto found = tables("bita:table-8", {}, UnequalBudgets::kMark);
  const std::string text = to_text(found);
  EXPECT_THAT(text, HasSubstr("2.11 ^ ["));
  EXPECT_THAT(text, HasSubstr("^: not trained like the others (225 updates"));
  EXPECT_THAT(text, HasSubstr(std::string(kShallow) + ": unknown"));
  EXPECT_THAT(to_latex(found), HasSubstr("2.11 \\textasciicircum{}"));
  std::map<std::string, std::vector<bool>> marks;
  for (const json& figure : json::parse(to_json(found)))
    marks[figure["row"].get<std::string>()].push_back(figure["unequal_budget"].get<bool>());
  EXPECT_THAT(marks["masks only"], ElementsAre(false, false));
  EXPECT_THAT(marks["shallow prompt"], ElementsAre(true, true));
  EXPECT_THAT(marks["bi-directional tuning"], ElementsAre(true, true));
}

TEST_F(PaperTableTest, TrainingOnTestPromptsIsTold) {
  run_.tasks = {"gsm8k"};
  set_trained({{"falcon", 225}, {"medusa", 225}, {"eagle", 225}});
  EXPECT_THAT(to_text(tables("falcon:table-1")), Not(HasSubstr("trained on")));
  settings_["medusa"]["adapter_overlap"] = R"({"gsm8k":3,"mbpp":1})";
  settings_["eagle"]["adapter_overlap"] = R"({"xsum":2})";
  EXPECT_THAT(
      to_text(tables("falcon:table-1")),
      HasSubstr("  medusa was trained on 3 prompts of gsm8k and 1 prompt of mbpp; eagle was "
                "trained on 2 prompts of xsum.\n"));
}

TEST_F(PaperTableTest, LengthsAndTemplatesOfTasksAreTold) {
  run_.tasks = {"gsm8k"};
  set_arms({"falcon"});
  settings_["falcon"] = {{"max_new.humaneval", "32"},
                         {"max_new.gsm8k", "16"},
                         {"chat_template.gsm8k", "llama2-full"},
                         {"chat_template", "chatml"}};
  EXPECT_THAT(to_text(tables("falcon:table-1")),
              HasSubstr("at most 64 new tokens (gsm8k 16, humaneval 32), chat templates: gsm8k "
                        "llama2-full; prompts: GSM8K 4."));
}

// Figure 4 of SPACE: grades of the judge against those of the control.
TEST_F(PaperTableTest, WinsAreAgainstTheControl) {
  const std::string sft = "ar_tuned:adapter=space-sft", sar = "ar_tuned:adapter=space-sar";
  run_.tasks = {"mt_bench"};
  set_trained({{sft, 225}, {sar, 225}});
  const auto judged = [&](UnequalBudgets unequal) {
    const int64_t id = fill();
    run_.key += "+";
    for (const auto& [label, settings] : settings_)
      store_.execute(
          fmt::format("UPDATE arm SET settings = '{}' WHERE label = '{}'", settings.dump(), label));
    store_.execute("DELETE FROM score");
    // By prompt the control has 5 5 5 5 and the other arm 9 5 5 2.
    store_.execute(fmt::format(
        "INSERT INTO score (generation_id, evaluator, version, value, extracted, status, "
        "detail, suspicious, facts) "
        "SELECT g.id, 'mt_bench_judge', 'single-v1:m', "
        "CASE WHEN a.label = '{}' THEN CASE p.name WHEN 'mt_bench/0' THEN 9 WHEN 'mt_bench/3' "
        "THEN 2 ELSE 5 END ELSE 5 END, '', 'ok', '', 0, '{{}}' FROM generation g JOIN arm a ON "
        "a.id = g.arm_id "
        "JOIN prompt p ON p.id = g.prompt_id WHERE a.run_id = {}",
        sar, id));
    return paper_tables(store_, id, {}, find_paper_forms("space:figure-4"), {}, unequal);
  };
  const auto found = judged(UnequalBudgets::kRefuse);
  ASSERT_EQ(found.size(), 1u);
  const std::vector<PaperCell>& cells = found[0].rows[0].cells;
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_NEAR(*cells[0].value, 25, 1e-9);
  EXPECT_NEAR(*cells[1].value, 50, 1e-9);
  EXPECT_NEAR(*cells[2].value, 25, 1e-9);
  // Wilson's of 1 of 4.
  EXPECT_NEAR(cells[0].interval->lo, 4.558726, 1e-6);
  EXPECT_NEAR(cells[0].interval->hi, 69.935816, 1e-6);
  EXPECT_EQ(cells[0].n_eff, 4);
  EXPECT_THAT(to_text(found), HasSubstr("lower than those of ar_tuned:adapter=space-sft"));
  // The control takes part in the comparison of budgets.
  settings_[sft] = json::object({{"adapter", "hash of another"}});
  EXPECT_THROW(judged(UnequalBudgets::kRefuse), base::Error);
  EXPECT_TRUE(judged(UnequalBudgets::kMark)[0].rows[0].cells[0].unequal);
  // Its test prompts are told, too.
  settings_[sft]["adapter_overlap"] = R"({"mt_bench":2})";
  EXPECT_THAT(to_text(judged(UnequalBudgets::kMark)),
              HasSubstr(sft + " was trained on 2 prompts of mt_bench."));
  // Without it there is nothing to be better than.
  settings_.clear();
  set_trained({{sar, 225}});
  EXPECT_THROW(judged(UnequalBudgets::kMark), base::Error);
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
