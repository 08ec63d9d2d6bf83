// Acceptance of a report by hand: by depth, by place in the tree, and what follows from it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/figures/report.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::SyntheticArm;

TEST_F(ReportTest, AcceptanceByDepthByHand) {
  run_.prompts_per_task = 1;
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  // 13 steps of depth 4: three rounds of 3, 1, 0, 2 and one step cut after 2 accepted tokens.
  // Depth 1: all 13 tested, 3 x (3, 1, 2) + 1 accepted. Depth 2: 10 tested, 3 x (3, 2) + 1.
  // Depth 3: 3 x (3, 2) tested, the cut step is unknown there. Depth 4: 3 tested, none accepted.
  ASSERT_EQ(pld.acceptance.by_depth.size(), 4u);
  const int64_t tested[] = {13, 10, 6, 3}, accepted[] = {10, 7, 3, 0};
  double joint = 0;
  for (size_t d = 0; d < 4; ++d) {
    EXPECT_EQ(pld.acceptance.by_depth[d].tested, tested[d]) << d;
    EXPECT_EQ(pld.acceptance.by_depth[d].accepted, accepted[d]) << d;
    joint += pld.acceptance.by_depth[d].joint;
  }
  EXPECT_NEAR(joint, *pld.acceptance.accepted_per_step, 1e-12);  // sum of P(at least d accepted)
}

// A tree of a and b after the root, c after b. Four rounds of steps that accept a, which is a leaf;
// b and not c; b and c; nothing. A cut after a ends the answer.
TEST_F(ReportTest, ALeafOfATreeRefusesNothing) {
  run_.prompts_per_task = 1;
  run_.tokens = 34;
  const auto fill = [&](const std::string& key, bool with_nodes) {
    run_.key = key;
    run_.change = [with_nodes](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int,
                               int) {
      if (a.role != "method") return;
      results::TurnRecord& turn = g.turns[0];
      turn.steps.clear(), turn.nodes.clear();
      for (int k = 0; k < 17; ++k) {
        const int walked[] = {1, 1, 2, 0};
        results::StepRecord s;
        s.drafted = 3, s.drafted_depth = 2, s.rows = 4, s.accepted = walked[k % 4];
        s.emitted = s.accepted + (k < 16 ? 1 : 0);
        turn.steps.push_back(s);
      }
      if (with_nodes)
        turn.nodes = {{.depth = 1, .rank = 0, .tested = 17, .accepted = 5},
                      {.depth = 1, .rank = 1, .tested = 17, .accepted = 8},
                      {.depth = 2, .rank = 0, .tested = 8, .accepted = 4}};
    };
    return report();
  };
  const auto depth = [&](const Report& r, size_t d) {
    return row(r, "pld:k=4", "gsm8k").acceptance.by_depth.at(d - 1);
  };
  const Report r = fill("nodes", true);
  ASSERT_EQ(row(r, "pld:k=4", "gsm8k").acceptance.by_depth.size(), 2u);
  EXPECT_EQ(depth(r, 1).tested, 17);
  EXPECT_EQ(depth(r, 1).accepted, 13);
  EXPECT_EQ(depth(r, 2).tested, 8) << "c after b, by eight steps";
  EXPECT_EQ(depth(r, 2).accepted, 4);
  EXPECT_DOUBLE_EQ(depth(r, 2).conditional, 0.5);
  EXPECT_DOUBLE_EQ(depth(r, 2).joint, 4.0 / 17);
  const Report old = fill("none", false);
  EXPECT_EQ(depth(old, 2).tested, 12) << "the longest path counts";
}

// Lookahead and Self-Draft may accept one token less than they draft: the last one is never asked.
TEST_F(ReportTest, ADepthThatNoStepWasAskedAtIsNone) {
  run_.prompts_per_task = 1;
  run_.arms[2].accepted = {3};
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.role == "method")
      std::erase_if(g.turns[0].nodes, [](const auto& node) { return node.depth == 4; });
  };
  const Report r = report();
  const auto& depths = row(r, "pld:k=4", "gsm8k").acceptance.by_depth;
  ASSERT_EQ(depths.size(), 3u);
  EXPECT_EQ(depths[2].tested, 8);
  EXPECT_EQ(depths[2].conditional, 1);
}

TEST_F(ReportTest, NodesArePooledByTheirPlace) {
  run_.tasks = {"gsm8k", "chat"};
  run_.repeats = 2;
  const Report r = report();
  const ReportRow& part = row(r, "pld:k=4", "gsm8k");
  const ReportRow& all = row(r, "pld:k=4", "all");
  ASSERT_EQ(part.acceptance.by_node.size(), 4u);
  ASSERT_EQ(all.acceptance.by_node.size(), 4u);
  for (size_t d = 0; d < 4; ++d) {
    const NodeAcceptance& n = all.acceptance.by_node[d];
    EXPECT_EQ(n.depth, static_cast<int64_t>(d) + 1);
    EXPECT_EQ(n.rank, 0);
    EXPECT_EQ(n.tested, 2 * part.acceptance.by_node[d].tested);
    // A chain's nodes are its depths; only the cut of a last step is seen by the nodes alone.
    EXPECT_GE(n.tested, all.acceptance.by_depth[d].tested);
    EXPECT_LE(n.tested, all.acceptance.by_depth[d].tested + 2 * 2 * 4);
  }
  EXPECT_TRUE(row(r, "ar", "gsm8k").acceptance.by_node.empty());
  const auto written = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(written[0]["acceptance_by_node"], nlohmann::json::array());
  EXPECT_EQ(written[2]["acceptance_by_node"][0]["tested"], part.acceptance.by_node[0].tested);
  EXPECT_THAT(to_csv(r), Not(HasSubstr("acceptance_by_node")));
}

TEST_F(ReportTest, AMethodThatDraftsNothingShowsIt) {
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int, int, int) {
    if (a.role != "method") return;
    int kept = 0;
    for (auto& s : g.turns[0].steps) {  // a draft in every eighth step, all of it good
      if (kept++ % 8 == 0) continue;
      s.drafted = s.drafted_depth = 0, s.rows = 1;
    }
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_GT(*pld.acceptance.no_draft, 0.8);
  EXPECT_DOUBLE_EQ(*pld.acceptance.no_draft, pld.acceptance.undrafted / pld.acceptance.steps);
  EXPECT_FALSE(row(r, "ar", "gsm8k").acceptance.no_draft.has_value());
  EXPECT_DOUBLE_EQ(*row(r, "ar", "gsm8k").acceptance.rows_per_step, 1);
  EXPECT_THAT(to_text(build_report(store_, 1, {.why = false, .columns = {"no_draft"}})),
              HasSubstr(fmt::format("{:.1f} %", 100 * *pld.acceptance.no_draft)));
}

TEST_F(ReportTest, IdentitiesWithoutACut) {
  run_.tokens = 41;
  run_.prompts_per_task = 1;  // 40 = 4 whole rounds: every step ends with a token of the target
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_DOUBLE_EQ(*pld.acceptance.tau, 1 + *pld.acceptance.accepted_per_step);
  EXPECT_NEAR(*pld.acceptance.alpha_share, (*pld.acceptance.tau - 1) / *pld.acceptance.tau, 1e-15);
  EXPECT_NEAR(*pld.acceptance.accepted_per_step,
              *pld.acceptance.alpha_share / (1 - *pld.acceptance.alpha_share), 1e-14);
}

}  // namespace
}  // namespace evalrun::reports
