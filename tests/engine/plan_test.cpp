#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/forward_plan.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

using ::testing::ElementsAre;

ForwardPlan plan_of(const std::vector<Row>& rows, std::vector<int> lengths = {10},
                    int max_tokens = 100) {
  ForwardPlan p;
  p.build({.rows = rows}, lengths, max_tokens, small_config());
  return p;
}
std::vector<int> visible(const ForwardPlan& p, size_t i) {
  const auto v = p.visible(p.rows()[i]);
  return {v.begin(), v.end()};
}

TEST(ForwardPlan, PositionsAndVisibilityFollowFromParents) {
  const auto p = plan_of({{.token = 1},
                          {.token = 2, .parent = 0},
                          {.token = 3, .parent = 0},
                          {.token = 4, .parent = 1},
                          {.token = 5, .parent = 2},
                          {.token = 6, .parent = 3}});
  EXPECT_THAT(visible(p, 0), ElementsAre(0));
  EXPECT_THAT(visible(p, 3), ElementsAre(0, 1, 3));
  EXPECT_THAT(visible(p, 4), ElementsAre(0, 2, 4));
  EXPECT_THAT(visible(p, 5), ElementsAre(0, 1, 3, 5));
  EXPECT_EQ(p.rows()[0].position, 10);
  EXPECT_EQ(p.rows()[4].position, 12);
  EXPECT_EQ(p.rows()[5].position, 13);
}

TEST(ForwardPlan, ARejectionTestNeedsItsDistributions) {
  const std::vector<Row> rows = {{.token = 1, .uniform = 0.5}};
  const std::vector<RejectionTest> tests = {{.row = 0}};
  EXPECT_THROW(check_request({.rows = rows, .rejection_tests = tests}, small_config()),
               base::InternalError);
}

TEST(ForwardPlan, SpaceGroupsOfMasksSeeTheirNodeOnly) {
  // SPACE with k = 2: nodes 0, 3, 6 are a chain; masks hang after each node.
  const auto p = plan_of({{.token = 1},
                          {.token = 0, .parent = 0},
                          {.token = 0, .parent = 1},
                          {.token = 2, .parent = 0},
                          {.token = 0, .parent = 3},
                          {.token = 0, .parent = 4},
                          {.token = 3, .parent = 3},
                          {.token = 0, .parent = 6},
                          {.token = 0, .parent = 7}});
  EXPECT_THAT(visible(p, 5), ElementsAre(0, 3, 4, 5));
  EXPECT_THAT(visible(p, 8), ElementsAre(0, 3, 6, 7, 8));
  EXPECT_EQ(p.rows()[8].position, 14);
}

TEST(ForwardPlan, BlocksShareOneListAndSlotsFollow) {
  const auto p = plan_of({{.token = 1},
                          {.token = 2, .parent = 0, .block = 7},
                          {.token = 3, .parent = 0, .block = 7},
                          {.token = 4, .parent = 2, .block = 8},
                          {.token = 5, .parent = 2, .block = 8}});
  EXPECT_THAT(visible(p, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(visible(p, 3), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(p.rows()[1].position, 11);
  EXPECT_EQ(p.rows()[2].position, 12);
  EXPECT_EQ(p.rows()[3].position, 13);
  EXPECT_EQ(p.rows()[4].position, 14);
}

TEST(ForwardPlan, ExplicitPositionsSetTheLogicalOrderWithoutDisturbingAncestors) {
  const auto p = plan_of({{.token = 1, .position = 15},
                          {.token = 2, .parent = 0, .position = 12},
                          {.token = 3, .parent = 0, .position = 16}});
  EXPECT_THAT(visible(p, 0), ElementsAre(0));
  EXPECT_THAT(visible(p, 1), ElementsAre(1, 0));
  EXPECT_THAT(visible(p, 2), ElementsAre(0, 2));
}

TEST(ForwardPlan, PromptsOfSeveralSequencesAreAChainEach) {
  const std::vector<int32_t> a = {5, 6, 7}, b = {8};
  const PrefillPart parts[] = {{a, 2, 130}, {b, 0, 0}};
  ForwardPlan p;
  p.build_prefill(parts, true, false);
  EXPECT_TRUE(p.prefill());
  ASSERT_EQ(p.n_rows(), 4);
  EXPECT_THAT(visible(p, 0), ElementsAre(0));
  EXPECT_THAT(visible(p, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(visible(p, 3), ElementsAre(3));
  const auto hidden = p.hidden_rows();
  EXPECT_EQ(std::vector<int>(hidden.begin(), hidden.end()), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(p.rows()[2].sequence, 2);
  EXPECT_EQ(p.rows()[2].context, 130);
  EXPECT_EQ(p.rows()[2].position, 132);
  EXPECT_EQ(p.rows()[2].token, 7);
  EXPECT_EQ(p.rows()[3].sequence, 0);
  EXPECT_EQ(p.rows()[3].position, 0);
  p.build_prefill({parts, 1}, false, true);
  EXPECT_TRUE(p.hidden_rows().empty());
  EXPECT_EQ(p.hidden_of()[2], -1);
}

TEST(ForwardPlan, MalformedRequestsAreRefused) {
  EXPECT_THROW(plan_of({}), base::InternalError);
  EXPECT_THROW(plan_of({{.token = 1, .parent = 0}}), base::InternalError);
  EXPECT_THROW(plan_of({{.token = 101}}), base::InternalError);
  EXPECT_THROW(plan_of({{.token = -1}}), base::InternalError);
  EXPECT_THROW(plan_of({{.embedding = 0}}), base::InternalError);
  EXPECT_THROW(plan_of({{.token = 1, .sequence = 1}}), base::InternalError);
  EXPECT_THROW(plan_of({{.token = 1}, {.token = 1, .parent = 0, .sequence = 1}}, {3, 3}),
               base::InternalError);
  EXPECT_THROW(plan_of({{.token = 1, .prefix = true}}), base::InternalError);
  EXPECT_THROW(plan_of({{.token = 1, .low_rank = true}}), base::InternalError);
  EXPECT_THROW(plan_of({{.token = 1},
                        {.token = 1, .parent = 0, .block = 1},
                        {.token = 1, .parent = 1, .block = 1}}),
               base::InternalError);
}

TEST(ForwardPlan, PositionsBeyondTheSessionAreAUserError) {
  try {
    (void)plan_of({{.token = 1}}, {100}, 100);
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("100"));
  }
}

}  // namespace
}  // namespace evalrun::engine::testing
