// Trees by confidence on probabilities that are given by hand.
#include "methods/heads/confidence_tree.h"

#include <gmock/gmock.h>

#include <cmath>

namespace evalrun::tests::confidence_tree_test {
namespace {

using methods::ConfidenceTree;
using methods::TokenTree;
using testing::ElementsAre;
using testing::IsEmpty;

TokenTree drafted(ConfidenceTree& tree) {
  TokenTree draft;
  draft.reset(9);
  tree.choose(draft);
  return draft;
}

TEST(ConfidenceTree, GoesOnFromTheSurestAndDraftsTheSurestOfAll) {
  ConfidenceTree tree({2, 3, 4}, nullptr);
  for (int step = 0; step < 2; ++step) {  // clear() forgets the first
    tree.clear(0.1);
    tree.add(-1, 0, 12, std::log(0.1));
    tree.add(-1, 0, 10, std::log(0.5));
    tree.add(-1, 0, 11, std::log(0.3));
    EXPECT_THAT(tree.next_level(0.1, 1), ElementsAre(1, 2));
    tree.add(1, 5, 20, std::log(0.7));  // 0.35
    tree.add(1, 5, 21, std::log(0.1));  // 0.05
    tree.add(2, 6, 22, std::log(0.9));  // 0.27
    EXPECT_EQ(tree.node(5).from, 6);
    EXPECT_NEAR(std::exp(tree.node(5).log_prob), 0.27, 1e-12);
    EXPECT_THAT(tree.next_level(0.1, 1), ElementsAre(3, 5)) << "of the newest level alone";
    const TokenTree draft = drafted(tree);
    EXPECT_THAT(draft.token, ElementsAre(9, 10, 11, 20, 22)) << "all but the nodes of 0.1 and 0.05";
    EXPECT_THAT(draft.parent, ElementsAre(-1, 0, 0, 1, 2));
  }
}

// total=0, with 5 % for a row. A level is worth its forward where half of what reaches it is more
// than the forward costs; a node is worth its row.
TEST(ConfidenceTree, TakesWhatPays) {
  const auto level = [](double cost, int rows) {
    ConfidenceTree tree({3, 4, 0}, nullptr);
    tree.clear(0.1);
    for (const double p : {0.6, 0.3, 0.04}) tree.add(-1, 0, 1, std::log(p));
    const auto nodes = tree.next_level(cost, rows);
    return std::vector<int>(nodes.begin(), nodes.end());
  };
  EXPECT_THAT(level(0.1, 1), ElementsAre(0, 1)) << "0.04 is less than a row costs";
  EXPECT_THAT(level(0, 1), ElementsAre(0, 1));
  EXPECT_THAT(level(0.42, 1), ElementsAre(0, 1));  // 0.45 against 0.42 * 1.05
  EXPECT_THAT(level(0.42, 2), IsEmpty());          // against 0.42 * 1.15
  EXPECT_THAT(level(1, 1), IsEmpty());

  ConfidenceTree tree({3, 4, 0}, nullptr);
  tree.clear(0.1);
  for (const double p : {0.6, 0.3, 0.01}) tree.add(-1, 0, 1, std::log(p));
  EXPECT_EQ(drafted(tree).drafted(), 2);  // 1.9 / 1.2 against 1.91 / 1.25
}

TEST(ConfidenceTree, TheLargestStep) {
  const methods::LargestStep fixed = ConfidenceTree({10, 6, 59}, nullptr).largest_step(0.2, {1, 9});
  EXPECT_EQ(fixed.rows, 60);
  EXPECT_EQ(fixed.draft_cost, 0.2);
  EXPECT_THAT(fixed.draft_rows, ElementsAre(1, 9));
  EXPECT_EQ(fixed.limit, 0);
  // Two nodes, then twice two after each of two: 10 are seen.
  EXPECT_EQ(ConfidenceTree({2, 3, 100}, nullptr).largest_step(0.2, {1}).rows, 11);
  // 1 + 6 tokens are expected at most. One node is 1.05 for two rows and 0.2 for the first forward;
  // five further levels cost half a step each at most.
  const methods::LargestStep pays = ConfidenceTree({10, 6, 0}, nullptr).largest_step(0.2, {1, 9});
  EXPECT_EQ(pays.rows, 511);
  EXPECT_NEAR(pays.limit, 7 * (1.05 + 0.2 + 2.5), 1e-9);
}

}  // namespace
}  // namespace evalrun::tests::confidence_tree_test
