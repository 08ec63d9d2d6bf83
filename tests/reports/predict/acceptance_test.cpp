// Acceptance along the answer, by depth and by where steps begin: counts by hand, and a drafter
// that is the same at every length.
#include "reports/predict/acceptance.h"

#include <gmock/gmock.h>

#include "engine/base/rng.h"
#include "reports/predict/predict_report.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::StepRecord;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class AcceptanceTest : public ReportTest {
 protected:
  std::vector<ArmAcceptance> acceptance() {
    const RunData data = load_run(store_, tests::fill(store_, run_));
    std::vector<const ArmInfo*> arms;
    for (const ArmInfo& a : data.arms)
      if (a.drafts()) arms.push_back(&a);
    return acceptance_of_arms(store_, data, arms, load_shared_answers(store_, data));
  }
};

// 33 tokens, 32 by steps: 3, 1, 0, 2 of 4 are accepted in turn, three times over; the thirteenth
// step accepts 2 and is cut by the limit.
TEST_F(AcceptanceTest, ByHand) {
  run_.prompts_per_task = 1;
  const ArmAcceptance a = acceptance().at(0);
  EXPECT_EQ(a.arm, "pld:k=4");
  EXPECT_EQ(a.n_prompts, 1);
  ASSERT_THAT(a.depths, SizeIs(4));
  const auto depth = [&](size_t d) { return a.depths[d - 1]; };
  EXPECT_EQ(depth(1).accepted, 10);
  EXPECT_EQ(depth(1).refused, 3);
  EXPECT_EQ(depth(2).accepted, 7);
  EXPECT_EQ(depth(2).refused, 3);
  EXPECT_EQ(depth(3).accepted, 3);
  EXPECT_EQ(depth(3).refused, 3);
  EXPECT_EQ(depth(3).cut, 1);
  EXPECT_EQ(depth(4).refused, 3);
  for (const DepthOutcome& o : a.depths) EXPECT_EQ(o.not_drafted, 0);
  EXPECT_EQ(a.first.tested, 13);
  EXPECT_EQ(a.first.accepted, 10);
  EXPECT_EQ(a.first_by_before[static_cast<size_t>(Before::kNothing)].tested, 1);
  EXPECT_EQ(a.first_by_before[static_cast<size_t>(Before::kRefused)].tested, 12);
  EXPECT_FALSE(a.first_shared) << "the method has one arm";
  // Quarters of 8 tokens: steps begin at 0 4 6 7 | 10 14 | 16 17 20 | 24 26 27 30.
  const std::array<double, 4> steps = {4, 2, 3, 4}, emitted = {10, 6, 8, 8};
  for (size_t p = 0; p < 4; ++p) {
    EXPECT_EQ(a.parts[p].steps, steps[p]);
    EXPECT_EQ(a.parts[p].emitted, emitted[p]);
  }
}

TEST_F(AcceptanceTest, WhatWasNotDraftedIsNotRefused) {
  run_.prompts_per_task = 1;
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.role != "method") return;
    // One accepted whole, one without a draft, and so on.
    std::vector<StepRecord>& steps = g.turns[0].steps;
    steps.clear();
    for (int left = 32; left > 0; left -= steps.back().emitted) {
      StepRecord s;
      s.drafted = s.drafted_depth = s.accepted = steps.size() % 2 == 0 ? 1 : 0;
      s.rows = 1 + s.drafted;
      s.emitted = std::min(left, s.accepted + 1);
      steps.push_back(s);
    }
    g.turns[0].nodes.clear();
  };
  const ArmAcceptance a = acceptance().at(0);
  ASSERT_THAT(a.depths, SizeIs(2));
  EXPECT_EQ(a.depths[0].accepted, 11);
  EXPECT_EQ(a.depths[0].refused, 0);
  EXPECT_EQ(a.depths[0].not_drafted, 10);
  EXPECT_EQ(a.depths[1].not_drafted + a.depths[1].cut, 11);
  EXPECT_EQ(a.first.tested, 11);
  EXPECT_EQ(a.first_by_before[static_cast<size_t>(Before::kUndrafted)].tested, 10);
}

// A tree of three nodes: a and b after the root, c after b. A step accepts a, which is a leaf; b
// and not c; b and c; or nothing. So these steps emit 2, 2, 3 and 1 tokens.
class AcceptanceOfTrees : public AcceptanceTest {
 protected:
  // Steps of these kinds in turn. The limit of `tokens` cuts the last one, as a stop token would.
  // Nodes are counted as the decoding loop does: all children of a node on the walk, cut or not.
  ArmAcceptance of_tree(int tokens) {
    run_.prompts_per_task = 1;
    run_.tokens = tokens;
    run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
      if (a.role != "method") return;
      results::TurnRecord& turn = g.turns[0];
      results::NodeCount node_a{.depth = 1, .rank = 0}, node_b{.depth = 1, .rank = 1},
          node_c{.depth = 2, .rank = 0};
      turn.steps.clear();
      for (int left = static_cast<int>(turn.tokens.size()) - 1; left > 0;) {
        const size_t kind = turn.steps.size() % 4;
        const int walked[] = {1, 1, 2, 0};
        StepRecord s;
        s.drafted = 3, s.drafted_depth = 2, s.rows = 4;
        s.emitted = std::min(left, walked[kind] + 1);
        s.accepted = std::min(walked[kind], s.emitted);
        left -= s.emitted;
        turn.steps.push_back(s);
        ++node_a.tested, node_a.accepted += kind == 0;
        ++node_b.tested, node_b.accepted += kind == 1 || kind == 2;
        node_c.tested += kind == 1 || kind == 2, node_c.accepted += kind == 2;
      }
      turn.nodes = {node_a, node_b, node_c};
    };
    if (without_nodes_) {
      const auto with_nodes = run_.change;
      run_.change = [with_nodes](results::GenerationRecord& g, const tests::SyntheticArm& a,
                                 int prompt, int repeat, int sample) {
        with_nodes(g, a, prompt, repeat, sample);
        g.turns[0].nodes.clear();
      };
    }
    return acceptance().at(0);
  }
  static void expect_depth(const DepthOutcome& o, double accepted, double refused,
                           double not_drafted, double unclear, double cut) {
    EXPECT_EQ(o.accepted, accepted);
    EXPECT_EQ(o.refused, refused);
    EXPECT_EQ(o.not_drafted, not_drafted);
    EXPECT_EQ(o.unclear, unclear);
    EXPECT_EQ(o.cut, cut);
  }
  bool without_nodes_ = false;
};

// Four rounds. At depth 2 c was accepted, refused and absent four times each.
TEST_F(AcceptanceOfTrees, ALeafRefusesNothing) {
  const ArmAcceptance a = of_tree(33);
  ASSERT_THAT(a.depths, SizeIs(3));
  expect_depth(a.depths[0], 12, 4, 0, 0, 0);
  expect_depth(a.depths[1], 4, 4, 4, 0, 0);
  expect_depth(a.depths[2], 0, 0, 4, 0, 0);
  PredictReport report;
  report.acceptance = {a};
  const std::string text = to_markdown(report);
  EXPECT_THAT(text, HasSubstr(" 0.500 |"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("refused or not drafted")));
  // Which of the steps were at a leaf is not known. In the last quarter, by a round: 4 draft tokens
  // were accepted, one was refused, and two steps were refused or at a leaf.
  EXPECT_EQ(a.parts[3].tokens.tested, 5);
  EXPECT_EQ(a.parts[3].tokens.accepted, 4);
  EXPECT_EQ(a.parts[3].unclear, 2);
  EXPECT_THAT(text, HasSubstr("2.00 (0.57 to 0.80)"));
  EXPECT_THAT(text, HasSubstr("all of these refused, or none"));
  EXPECT_EQ(a.first_by_before[static_cast<size_t>(Before::kUnclear)].tested, 8);
}

// Old files have no nodes: 8 steps of depth 2 were refused or at a leaf, so 4 of 4 to 4 of 12 were
// accepted.
TEST_F(AcceptanceOfTrees, WithoutNodesBothAreShownTogether) {
  without_nodes_ = true;
  const ArmAcceptance a = of_tree(33);
  ASSERT_THAT(a.depths, SizeIs(3));
  expect_depth(a.depths[0], 12, 4, 0, 0, 0);
  expect_depth(a.depths[1], 4, 0, 0, 8, 0);
  PredictReport report;
  report.acceptance = {a};
  const std::string text = to_markdown(report);
  EXPECT_THAT(text, HasSubstr("refused or not drafted"));
  EXPECT_THAT(text, HasSubstr("0.333 to 1.000"));
  EXPECT_THAT(text, HasSubstr("after a refusal or a leaf"));
  const Json parsed = Json::parse(to_json(report))["acceptance"][0];
  EXPECT_EQ(parsed["depths"][1]["unclear"], 8);
  EXPECT_EQ(parsed["first_after"].size(), 5u);
}

// Three rounds, then a, b, and b and c cut after b: the nodes know that the walk went on to c.
TEST_F(AcceptanceOfTrees, NodesKnowHowFarACutStepWent) {
  const ArmAcceptance a = of_tree(30);
  ASSERT_THAT(a.depths, SizeIs(3));
  expect_depth(a.depths[0], 12, 3, 0, 0, 0);
  expect_depth(a.depths[1], 3, 4, 4, 0, 1);
}

// Four rounds, then a cut after it. It was a leaf, or its child was refused: one question more or
// less at depth 2.
TEST_F(AcceptanceOfTrees, ACutStepLeavesOneOpen) {
  const ArmAcceptance a = of_tree(34);
  ASSERT_THAT(a.depths, SizeIs(3));
  expect_depth(a.depths[0], 13, 4, 0, 0, 0);
  expect_depth(a.depths[1], 4, 3, 4, 1, 1);
  PredictReport report;
  report.acceptance = {a};
  EXPECT_THAT(to_markdown(report), HasSubstr("0.500 to 0.571"));
}

// The same drafter, with one token a draft and with eight: what it says of a token does not depend
// on where its draft began. All steps give it two first-token rates, shared places one.
TEST_F(AcceptanceTest, SelectionIsTakenOutAtSharedPlaces) {
  tests::SyntheticArm one = run_.arms.back(), eight = one;
  one.label = "sps:k=1", eight.label = "sps:k=8";
  one.method = eight.method = "sps";
  run_.arms = {run_.arms.front(), one, eight};
  run_.prompts_per_task = 40;
  run_.tokens = 200;
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                   int) {
    if (a.method != "sps") return;
    // Easy and hard stretches.
    base::Rng rng(static_cast<uint64_t>(prompt) + 1);
    std::vector<bool> right(g.turns[0].tokens.size() - 1);
    bool easy = true;
    for (size_t i = 0; i < right.size(); ++i) {
      if (rng.below(8) == 0) easy = !easy;
      right[i] = rng.uniform() < (easy ? 0.95 : 0.3);
    }
    std::vector<StepRecord>& steps = g.turns[0].steps;
    steps.clear();
    for (size_t at = 0; at < right.size();) {
      StepRecord s;
      s.drafted = s.drafted_depth = a.label == "sps:k=1" ? 1 : 8;
      s.rows = 1 + s.drafted;
      while (s.accepted < s.drafted && at + static_cast<size_t>(s.accepted) < right.size() &&
             right[at + static_cast<size_t>(s.accepted)])
        ++s.accepted;
      s.emitted = std::min(s.accepted + 1, static_cast<int>(right.size() - at));
      at += static_cast<size_t>(s.emitted);
      steps.push_back(s);
    }
    g.turns[0].nodes.clear();
  };
  const std::vector<ArmAcceptance> arms = acceptance();
  ASSERT_THAT(arms, SizeIs(2));
  EXPECT_GT(*arms[0].first.share(), *arms[1].first.share() + 0.05);
  ASSERT_TRUE(arms[0].first_shared && arms[1].first_shared);
  EXPECT_GT(arms[0].first_shared->tested, 100);
  EXPECT_EQ(arms[0].first_shared->tested, arms[1].first_shared->tested);
  EXPECT_EQ(arms[0].first_shared->accepted, arms[1].first_shared->accepted);
  PredictReport report;
  report.acceptance = arms;
  for (const std::string& text : {to_text(report), to_markdown(report), to_latex(report)}) {
    EXPECT_THAT(text, HasSubstr("at shared places"));
    EXPECT_THAT(text, HasSubstr("not drafted"));
    EXPECT_THAT(text, HasSubstr("last quarter"));
  }
  const Json parsed = Json::parse(to_json(report))["acceptance"];
  EXPECT_EQ(parsed[0]["quarters"].size(), 4u);
  EXPECT_EQ(parsed[1]["first_shared"]["tested"], arms[1].first_shared->tested);
  EXPECT_EQ(parsed[0]["first_after"][0]["after"], "the answer began");
}

}  // namespace
}  // namespace evalrun::reports
