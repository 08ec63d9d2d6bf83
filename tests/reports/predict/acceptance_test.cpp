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
