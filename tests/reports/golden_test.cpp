// Rendered tables, byte by byte, from a synthetic store (tests/results/synthetic.h). After a wanted
// change: EVALRUN_UPDATE_GOLDEN=1 bin/report_golden_test && git diff tests/data/reports
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "reports/compare/compare.h"
#include "reports/figures/report.h"
#include "reports/gate/gate.h"
#include "tests/reports/rendered.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {
namespace {

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(EVALRUN_TEST_DATA) + "/reports/" + name;
  if (std::getenv("EVALRUN_UPDATE_GOLDEN") != nullptr) base::write_file_atomic(path, text);
  EXPECT_EQ(base::read_file(path), text) << name;
}

class GoldenTest : public ::testing::Test {
 protected:
  GoldenTest() : store_(folder_.file("a.db")) {
    run_.tasks = {"gsm8k", "samples_chat"};
    run_.arms = tests::usual_arms();
    tests::SyntheticArm tree = run_.arms[2];  // drafts more nodes than its depth, is lossy, and now
                                              // and then drafts nothing
    tree.label = "tree|lossy";
    tree.lossless = "none";
    run_.arms.push_back(tree);
    run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                     int) {
      if (a.label == "tree|lossy") {
        for (auto& s : g.turns[0].steps) {
          s.drafted *= 2, s.rows = 2 + s.drafted;  // a row beside the draft
          if (s.accepted == 0) s.drafted = s.drafted_depth = 0, s.rows = 2;
        }
        g.turns[0].nodes = {{.depth = 1, .rank = 0, .tested = 20, .accepted = 9},
                            {.depth = 1, .rank = 1, .tested = 20, .accepted = 3},
                            {.depth = 2, .rank = 0, .tested = 12, .accepted = 4}};
        g.turns[0].tokens[3] += prompt % 2;
      }
      if (a.role == "aa") g.turns[0].decode_ns += 1'000'000 * (prompt - 1);
      if (a.role == "method" && prompt == 3) g.turns[0].decode_ns += 7'000'000;
    };
  }
  tests::TempFolder folder_;
  results::ResultStore store_;
  tests::SyntheticRun run_;
};

TEST_F(GoldenTest, Table) {
  const Report r = build_report(store_, tests::fill(store_, run_));
  expect_golden("table.md", to_markdown(r));
  expect_golden("table.txt", to_text(r));
  expect_golden("table.csv", to_csv(r));
  expect_golden("table.json", to_json(r));
  expect_golden("table.tex", to_latex(r));
}

// Arms that score otherwise now and then, mostly, and on every prompt by as much.
TEST_F(GoldenTest, Quality) {
  run_.tasks = {"gsm8k"};
  run_.prompts_per_task = 40;
  for (const char* label : {"seldom", "often", "always"}) {
    tests::SyntheticArm arm = run_.arms.back();
    arm.label = label;
    run_.arms.push_back(arm);
  }
  const int64_t id = tests::fill(store_, run_);
  const auto score = [&](const std::string& arm, const std::string& value) {
    store_.execute("UPDATE score SET value = (SELECT " + value +
                   " FROM generation g WHERE g.id = generation_id) WHERE value IS NOT NULL AND "
                   "generation_id IN (SELECT g.id FROM generation g JOIN arm a ON a.id = g.arm_id "
                   "WHERE a.label = '" +
                   arm + "')");
  };
  score("seldom", "CASE WHEN g.prompt_id % 9 = 0 THEN 1 - value ELSE value END");
  score("often", "CASE WHEN g.prompt_id % 4 > 0 THEN 0.5 - value / 4 ELSE value END");
  score("always", "value - 0.25");
  const Report r = build_report(store_, id);
  const auto part = [](const std::string& text, const char* first, const char* behind) {
    const size_t from = text.find(first);
    return text.substr(from, text.find(behind, from) - from);
  };
  expect_golden("quality.md", part(to_markdown(r), "| quality", "| why"));
  expect_golden("quality.txt", part(to_text(r), "quality", "why"));
  expect_golden("quality.tex", part(to_latex(r), "\\caption{Quality", "\\caption{What"));
}

// Three machines measured every third prompt each. The last is slow, and gains less.
TEST_F(GoldenTest, Machines) {
  run_.tasks = {"gsm8k"};
  run_.prompts_per_task = 12;
  const auto usual = run_.change;
  run_.change = [&](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt,
                    int repeat, int sample) {
    usual(g, a, prompt, repeat, sample);
    results::TurnRecord& t = g.turns[0];
    t.decode_ns += 100'000 * (prompt * 5 % 7);
    if (prompt % 3 == 2) t.decode_ns *= a.role == "method" ? 4 : 3;
  };
  const int64_t id = tests::fill(store_, run_);
  for (int m = 0; m < 3; ++m) {
    const int64_t machine = store_.add_machine(
        id, {fmt::format("key-{}", m), fmt::format("node-{}", m), {{"cpu", m < 2 ? "A" : "B"}}});
    store_.execute("UPDATE generation SET machine_id = ? WHERE prompt_id % 3 = ?",
                   {machine, int64_t{(m + 1) % 3}});
  }
  const Report r = build_report(store_, id);
  expect_golden("machines.md", to_markdown(r));
  expect_golden("machines.txt", to_text(r));
  expect_golden("machines.json", to_json(r));
}

TEST_F(GoldenTest, JsonKeys) {
  const Report r = build_report(store_, tests::fill(store_, run_));
  const auto rows = nlohmann::ordered_json::parse(to_json(r));
  ASSERT_TRUE(rows.is_array());
  const std::vector<std::string> promised = {"model",
                                             "method",
                                             "dataset",
                                             "n_prompts",
                                             "samples",
                                             "speedup",
                                             "speedup_lo",
                                             "speedup_hi",
                                             "tok_s",
                                             "tau",
                                             "accepted_per_step",
                                             "de",
                                             "alpha_draft",
                                             "alpha_share",
                                             "identical_share",
                                             "steps",
                                             "emitted",
                                             "t_ratio",
                                             "draft_share",
                                             "overhead",
                                             "residual",
                                             "dtype",
                                             "isa",
                                             "device",
                                             "lossless",
                                             "quality"};
  for (const auto& row : rows) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.push_back(key);
    ASSERT_GE(keys.size(), promised.size());
    keys.resize(promised.size());
    EXPECT_EQ(keys, promised);
    EXPECT_TRUE(row["quality"]["exact@1"]["value"].is_number());
    EXPECT_TRUE(row["quality"]["exact@1"]["n"].is_number_integer());
  }
  EXPECT_EQ(rows[0]["method"], "ar");
  EXPECT_EQ(rows[0]["speedup"], 1.0);
  EXPECT_TRUE(rows[0]["speedup_lo"].is_null());
  EXPECT_TRUE(rows[0]["steps"].is_number_integer());
}

TEST_F(GoldenTest, Comparison) {
  const int64_t a = tests::fill(store_, run_);
  run_.key = "second";
  run_.label = "after | change";
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& arm, int prompt, int,
                   int) {
    if (arm.role == "method")
      g.turns[0].decode_ns += g.turns[0].decode_ns / 10 + 1'000'000 * prompt;
  };
  const int64_t b = tests::fill(store_, run_);
  const Comparison c = compare_runs(store_, a, store_, b);
  expect_golden("compare.md", to_markdown(c));
  expect_golden("compare.txt", to_text(c));
  expect_golden("compare.json", to_json(c));
}

TEST_F(GoldenTest, Gate) {
  const int64_t a = tests::fill(store_, run_);
  run_.key = "second";
  const auto usual = run_.change;
  run_.change = [&](results::GenerationRecord& g, const tests::SyntheticArm& arm, int prompt,
                    int repeat, int sample) {
    usual(g, arm, prompt, repeat, sample);
    if (arm.label == "pld:k=4") g.turns[0].decode_ns += g.turns[0].decode_ns / 10;
  };
  const int64_t b = tests::fill(store_, run_);
  const GateResult g = evaluate_gate(store_, a, store_, b);
  expect_golden("gate.txt", to_text(g));
  expect_golden("gate.json", to_json(g));
}

}  // namespace
}  // namespace evalrun::reports
