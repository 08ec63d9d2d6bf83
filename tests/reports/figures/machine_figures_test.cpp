// Reports of runs that several machines measured, each prompt on one of them.
#include "reports/figures/machine_figures.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/compare/compare.h"
#include "reports/gate/gate.h"
#include "reports/predict/predict.h"
#include "results/machines.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTask = "gsm8k";

class MachineFiguresTest : public ReportTest {
 protected:
  // What a prompt's machine does to times: of every arm, and of methods alone.
  struct Machine {
    double slowness = 1, method = 1;
    std::map<std::string, std::string> facts = {};
  };
  // Prompt i is of machine i % k. Method times have some noise.
  int64_t fill_machines(const std::vector<Machine>& machines, int prompts) {
    run_.prompts_per_task = prompts;
    run_.change = [&](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                      int) {
      const Machine& m = machines[static_cast<size_t>(prompt) % machines.size()];
      double factor = m.slowness;
      if (a.role != "baseline") factor *= 1 + 0.001 * (prompt * 7 % 5);
      if (a.role == "method") factor *= m.method;
      results::TurnRecord& t = g.turns[0];
      t.prefill_ns = std::llround(m.slowness * static_cast<double>(t.prefill_ns));
      t.decode_ns = 0;
      for (results::StepRecord& s : t.steps) {
        for (int64_t results::StepRecord::*ns :
             {&results::StepRecord::draft_ns, &results::StepRecord::verify_ns,
              &results::StepRecord::commit_ns, &results::StepRecord::other_ns}) {
          s.*ns = std::llround(factor * static_cast<double>(s.*ns));
          t.decode_ns += s.*ns;
        }
      }
    };
    const int64_t id = tests::fill(store_, run_);
    for (size_t m = 0; m < machines.size(); ++m) {
      const int64_t row = store_.add_machine(
          id, {fmt::format("key-{}", m), fmt::format("node-{}", m), machines[m].facts});
      store_.execute(
          "UPDATE generation SET machine_id = ? WHERE run_id = ? AND prompt_id IN (SELECT id FROM "
          "prompt WHERE run_id = ? AND CAST(substr(name, instr(name, '/') + 1) AS INTEGER) % ? = "
          "?)",
          {row, id, id, static_cast<int64_t>(machines.size()), static_cast<int64_t>(m)});
    }
    return id;
  }
  const ReportRow& pld(const Report& r) { return row(r, "pld:k=4", kTask); }
};

TEST_F(MachineFiguresTest, OneMachineIsAsNone) {
  run_.prompts_per_task = 12;
  const int64_t id = tests::fill(store_, run_);
  const std::string before = to_json(build_report(store_, id));
  const std::string text = to_text(build_report(store_, id));
  const int64_t machine = store_.add_machine(id, {"a", "node", {{"cpu", "Other CPU"}}});
  store_.execute("UPDATE generation SET machine_id = ? WHERE id % 3 = 0", {machine});
  EXPECT_EQ(to_json(build_report(store_, id)), before) << "resumed where machines are stored";
  store_.execute("UPDATE generation SET machine_id = ?", {machine});
  store_.add_machine(id, {"b", "measured nothing", {}});
  const Report r = build_report(store_, id);
  EXPECT_EQ(to_json(r), before);
  EXPECT_EQ(to_text(r), text);
  EXPECT_FALSE(pld(r).machines);
  store_.execute("UPDATE generation SET machine_id = NULL WHERE id % 3 = 0");
  EXPECT_EQ(to_json(build_report(store_, id)), before);
}

// Three times slower in all it does: no ratio moves, and it weighs no more for being slow.
TEST_F(MachineFiguresTest, ASlowMachineMovesNoRatio) {
  const int64_t alike = fill_machines({{}, {}}, 24);
  const Report before = build_report(store_, alike);
  run_.key = "slow";
  const Report r = build_report(store_, fill_machines({{}, {.slowness = 3}}, 24));
  for (const char* label : {"pld:k=4", "ar (A/A)"}) {
    const SpeedFigures a = row(before, label, kTask).speed, b = row(r, label, kTask).speed;
    EXPECT_NEAR(*a.speedup, *b.speedup, 1e-6) << label;
    EXPECT_NEAR(a.interval->lo, b.interval->lo, 1e-6) << label;
    EXPECT_NEAR(a.interval->hi, b.interval->hi, 1e-6) << label;
    EXPECT_NEAR(*a.request, *b.request, 1e-6) << label;
    EXPECT_NEAR(*a.first_token_ratio, *b.first_token_ratio, 1e-6) << label;
    const SpeedReasons x = row(before, label, kTask).why, y = row(r, label, kTask).why;
    EXPECT_NEAR(*x.t_ratio, *y.t_ratio, 1e-6) << label;
    EXPECT_NEAR(*x.draft_share, *y.draft_share, 1e-6) << label;
  }
  EXPECT_NEAR(pld(before).ranking->against_fastest, pld(r).ranking->against_fastest, 1e-6);
  // Rates are each machine's own.
  EXPECT_FALSE(pld(r).speed.tok_s);
  EXPECT_FALSE(pld(r).speed.first_token_ms);
  const auto& each = pld(r).machines->each;
  ASSERT_EQ(each.size(), 2u);
  EXPECT_EQ(each[0].prompts, 12);
  EXPECT_NEAR(*each[0].base_tok_s, 100, 1e-6);
  EXPECT_NEAR(*each[1].base_tok_s, 100.0 / 3, 1e-4);
  EXPECT_NEAR(*each[1].tok_s / *each[1].base_tok_s, each[1].speedup->value, 1e-9);
  EXPECT_THAT(to_text(r),
              AllOf(HasSubstr("2 machines: node-0, node-1, each prompt on one of them"),
                    HasSubstr("Machines do not differ by more than chance"),
                    HasSubstr("For machines like these, of which two say little: pld:k=4"),
                    Not(HasSubstr("Machines differ"))));
}

TEST_F(MachineFiguresTest, MachinesThatDiffer) {
  const std::vector<Machine> machines = {{.facts = {{"cpu", "CPU A"}}},
                                         {.slowness = 0.5, .facts = {{"cpu", "CPU A"}}},
                                         {.slowness = 2, .method = 1.25, .facts = {{"cpu", "B"}}}};
  const int64_t id = fill_machines(machines, 36);
  const Report r = build_report(store_, id);
  const MachineFigures& m = *pld(r).machines;
  ASSERT_EQ(m.each.size(), 3u);
  // The harmonic mean, by tokens: the time that the job takes in plain decoding's.
  double tokens = 0, time = 0;
  for (size_t k = 0; k < 3; ++k) {
    double of_machine = 0;
    for (int p = static_cast<int>(k); p < 36; p += 3) of_machine += 32 + 4 * p;
    tokens += of_machine, time += of_machine / m.each[k].speedup->value;
  }
  EXPECT_NEAR(*pld(r).speed.speedup, tokens / time, 1e-6);
  EXPECT_NEAR(m.each[0].speedup->value / m.each[2].speedup->value, 1.25, 0.01);
  EXPECT_NEAR(m.each[0].speedup->value / m.each[1].speedup->value, 1, 0.01);
  ASSERT_TRUE(m.spread);
  EXPECT_LT(m.spread->p, 1e-6);
  EXPECT_EQ(m.spread->dof, 2);
  EXPECT_EQ(m.spread->within, 33);
  EXPECT_GT(m.spread->i2, 0.95);
  EXPECT_NEAR(m.spread->tau, std::log(1.25) / std::sqrt(3.0), 0.02);
  EXPECT_NEAR(m.like_these->value, *pld(r).speed.speedup, 1e-12) << "another interval alone";
  EXPECT_GT(m.like_these->interval->hi / m.like_these->interval->lo,
            1.3 * pld(r).speed.interval->hi / pld(r).speed.interval->lo);
  const std::string text = to_text(r);
  EXPECT_THAT(text, AllOf(HasSubstr("Machines differ: pld:k=4"), HasSubstr("(node-2) to"),
                          HasSubstr("p < 0.001"), HasSubstr("(2 x CPU A, B)"),
                          HasSubstr("For machines like these: pld:k=4")));
  EXPECT_THAT(to_latex(r), HasSubstr("Formed within 3 machines; the intervals are for these."));

  // The view has the same figures.
  store_.query(
      "SELECT m.name, s.tok_s, s.base_tok_s, s.speedup, s.n_prompts FROM v_machine_speed s JOIN "
      "arm "
      "a ON a.id = s.arm_id JOIN machine m ON m.id = s.machine_id WHERE a.label = 'pld:k=4' ORDER "
      "BY m.id",
      {}, [&, k = size_t{0}](const results::Row& v) mutable {
        const MachineFigure& f = m.each[k++];
        EXPECT_EQ(v.text(0), r.run.machines[static_cast<size_t>(f.machine)].name);
        EXPECT_NEAR(v.number(1), *f.tok_s, 1e-9);
        EXPECT_NEAR(v.number(2), *f.base_tok_s, 1e-9);
        EXPECT_NEAR(v.number(3), f.speedup->value, 1e-9);
        EXPECT_EQ(v.integer(4), f.prompts);
        return true;
      });
}

TEST_F(MachineFiguresTest, FormsForPrograms) {
  const Report r = build_report(store_, fill_machines({{}, {.method = 2}}, 12));
  const json rows = json::parse(to_json(r));
  const json& method = rows.back();
  ASSERT_EQ(method["method"], "pld:k=4");
  EXPECT_TRUE(method["tok_s"].is_null());
  ASSERT_EQ(method["machines"].size(), 2u);
  const json& first = method["machines"][0];
  for (const char* key : {"machine", "hardware", "n_prompts", "tok_s", "base_tok_s", "speedup",
                          "speedup_lo", "speedup_hi", "t_ratio"})
    EXPECT_TRUE(first.contains(key)) << key;
  for (const char* key :
       {"machines_q", "machines_p", "machines_i2", "machines_tau", "speedup_like_machines",
        "speedup_like_machines_lo", "speedup_like_machines_hi"})
    EXPECT_TRUE(method[key].is_number()) << key;
  EXPECT_TRUE(rows[0]["machines_q"].is_null()) << "plain decoding differs by nothing from itself";
  EXPECT_EQ(rows[0]["machines"][1]["speedup"], 1.0);
  EXPECT_THAT(to_csv(r), AllOf(HasSubstr("machines_p"), Not(HasSubstr("node-0"))));
  EXPECT_THAT(to_html(r, store_), AllOf(HasSubstr("2 machines: node-0"), HasSubstr("node-1")));
}

TEST_F(MachineFiguresTest, ManyMachinesShowBothEnds) {
  std::vector<Machine> machines;
  for (int m = 0; m < 12; ++m) machines.push_back({.method = 1 + 0.01 * m});
  const Report r = build_report(store_, fill_machines(machines, 48));
  const std::string text = to_text(r);
  EXPECT_THAT(text, AllOf(HasSubstr("12 machines: node-0, "), HasSubstr("and 4 more"),
                          HasSubstr("6 machines between"), HasSubstr("node-11 "),
                          Not(HasSubstr("node-8 "))));
  EXPECT_EQ(pld(r).machines->each.size(), 12u);
}

TEST_F(MachineFiguresTest, RowCostsOfEachMachine) {
  const auto table = [](double ratio) {
    return json{{"context", 128},
                {"rows", {{{"rows", 1}, {"ratio", 1}}, {{"rows", 2}, {"ratio", ratio}}}}}
        .dump();
  };
  EXPECT_THAT(to_text(build_report(store_, fill_machines({{.facts = {{"row_cost", table(1.25)}}},
                                                          {.facts = {{"row_cost", table(1.5)}}},
                                                          {.facts = {{"row_cost", "broken"}}}},
                                                         12))),
              AllOf(HasSubstr("T(n)/T(1) before the run on node-0, context 128: 2 rows 1.25"),
                    HasSubstr("T(n)/T(1) before the run on node-1, context 128: 2 rows 1.50"),
                    Not(HasSubstr("before the run on node-2"))));
  run_.key = "many";
  std::vector<Machine> machines;
  for (int m = 0; m < 10; ++m) machines.push_back({.facts = {{"row_cost", table(1.1 + 0.1 * m)}}});
  EXPECT_THAT(to_text(build_report(store_, fill_machines(machines, 20))),
              HasSubstr("on 10 machines, from the least to the largest: 2 rows 1.10 to 2.00"));
}

// The arm has nothing to be compared with there. The other arms keep the prompt.
TEST_F(MachineFiguresTest, WhatAnotherMachineMeasuredOfAPromptIsLeftOut) {
  const int64_t id = fill_machines({{}, {.slowness = 3}}, 16);
  store_.execute(
      "UPDATE generation SET machine_id = (SELECT max(id) FROM machine) WHERE prompt_id = 1 AND "
      "arm_id = 3");
  const Report r = build_report(store_, id);
  EXPECT_EQ(r.other_machine, 1);
  EXPECT_EQ(pld(r).counts.prompts, 15);
  EXPECT_EQ(pld(r).counts.unpaired, 1);
  EXPECT_EQ(row(r, "ar (A/A)", kTask).counts.prompts, 16);
  EXPECT_EQ(pld(r).machines->each[0].prompts, 7);
  EXPECT_EQ(pld(r).machines->each[1].prompts, 8);
  EXPECT_THAT(to_text(r), HasSubstr("Left out: 1 generation, as another machine measured"));
  // Where it is the plain decoding, the prompt is that machine's.
  store_.execute(
      "UPDATE generation SET machine_id = (SELECT min(id) FROM machine) WHERE prompt_id "
      "= 1 AND arm_id = 3");
  store_.execute(
      "UPDATE generation SET machine_id = (SELECT max(id) FROM machine) WHERE prompt_id "
      "= 1 AND arm_id = 1");
  const Report other = build_report(store_, id);
  EXPECT_EQ(other.other_machine, 2);
  EXPECT_EQ(row(other, "ar (A/A)", kTask).counts.prompts, 15);
  EXPECT_EQ(row(other, "ar", kTask).machines->each[1].prompts, 9);
}

TEST_F(MachineFiguresTest, OtherViewsOfTheRunKeepToIt) {
  const int64_t several = fill_machines({{}, {.slowness = 4}}, 16);
  run_.key = "one";
  run_.change = {};
  const int64_t one = tests::fill(store_, run_);
  const Comparison c = compare_runs(store_, one, store_, several);
  EXPECT_THAT(c.warnings, ::testing::Contains(HasSubstr("the set of machines is 1 machine in A, 2 "
                                                        "machines in B")));
  EXPECT_NEAR(c.arms.front().ratio, 1, 0.01) << "ratios are within machines";
  EXPECT_EQ(evaluate_gate(store_, one, store_, several).code, base::ExitCode::kNoBaseline);
  EXPECT_NE(evaluate_gate(store_, several, store_, several).code, base::ExitCode::kNoBaseline);
  const RunData data = load_run(store_, several);
  EXPECT_THAT(why_not_predicted({store_, data}, data.arms[2]), HasSubstr("measured by 2 machines"));
}

// Each machine's clock is its own; a change within one is said with its name.
TEST_F(MachineFiguresTest, ClocksAreJudgedMachineByMachine) {
  const int64_t id = fill_machines({{}, {}}, 40);
  // As merged files have them: one machine after the other.
  store_.execute(
      "UPDATE generation SET machine_id = (SELECT CASE WHEN prompt_id <= 20 THEN min(id) ELSE "
      "max(id) END FROM machine)");
  const auto clocks = [&](const std::string& mhz) {
    store_.execute("DELETE FROM clock");
    store_.execute("INSERT INTO clock SELECT g.id, " + mhz +
                   ", 1000000000, 0, 0, 0, 0, NULL FROM generation g JOIN machine m ON m.id = "
                   "g.machine_id");
    return to_text(build_report(store_, id));
  };
  EXPECT_THAT(clocks("CASE m.name WHEN 'node-0' THEN 3000.0 ELSE 2000.0 END"),
              HasSubstr(": quotable."));
  EXPECT_THAT(
      clocks("CASE WHEN m.name = 'node-1' AND g.prompt_id > 33 THEN 2000.0 ELSE 3000.0 END"),
      HasSubstr("within the run on node-1"));
}

}  // namespace
}  // namespace evalrun::reports
