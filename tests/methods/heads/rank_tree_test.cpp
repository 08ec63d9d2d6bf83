#include "methods/heads/rank_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::tests::rank_tree_test {
namespace {

using methods::parse_rank_tree;
using methods::RankTree;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> per_level(const RankTree& tree) {
  std::vector<int> counts(static_cast<size_t>(tree.depth()));
  for (const int level : tree.level) ++counts[static_cast<size_t>(level) - 1];
  return counts;
}

// Nodes per level as the papers and repositories state them (Falcon: counted from its figures).
TEST(RankTree, PublishedTreesHaveTheirPublishedShapes) {
  EXPECT_THAT(per_level(parse_rank_tree("t", "mc_sim_7b_63")), ElementsAre(10, 28, 23, 2));
  EXPECT_THAT(per_level(parse_rank_tree("t", "vicuna_7b_stage1")), ElementsAre(10, 32, 20, 1));
  EXPECT_THAT(per_level(parse_rank_tree("t", "vicuna_7b_stage2")), ElementsAre(10, 23, 23, 7));
  EXPECT_THAT(per_level(parse_rank_tree("t", "vicuna_33b_stage1")), ElementsAre(10, 34, 19));
  EXPECT_THAT(per_level(parse_rank_tree("t", "zephyr_stage2")), ElementsAre(10, 27, 23, 3));
  EXPECT_THAT(per_level(parse_rank_tree("t", "eagle")), ElementsAre(4, 8, 8, 3, 2));
  EXPECT_THAT(per_level(parse_rank_tree("t", "token_recycling")), ElementsAre(8, 21, 25, 15, 8, 3));
  EXPECT_THAT(per_level(parse_rank_tree("t", "falcon_llama")),
              ElementsAre(20, 19, 19, 15, 16, 10, 10, 9));
  EXPECT_THAT(per_level(parse_rank_tree("t", "falcon_vicuna")),
              ElementsAre(20, 15, 18, 22, 20, 22, 18, 22));
  EXPECT_EQ(parse_rank_tree("t", "falcon_vicuna").size(), 157);
  EXPECT_THAT(per_level(parse_rank_tree("t", "falcon_vicuna_figure")),
              ElementsAre(19, 15, 18, 22, 20, 22, 18, 22));
  EXPECT_THAT(per_level(parse_rank_tree("t", "falcon_height6")),
              ElementsAre(20, 15, 18, 22, 20, 22));
  EXPECT_THAT(per_level(parse_rank_tree("t", "falcon_repo")),
              ElementsAre(20, 15, 19, 23, 21, 23, 21, 23));
  for (const std::string& name : methods::tree_names()) {
    const RankTree tree = parse_rank_tree("t", name);
    EXPECT_EQ(parse_rank_tree("t", tree.text()).paths(), tree.paths()) << name;
  }
}

// Parts keep the paths of the whole, in its order.
TEST(RankTree, PartsAreTheWholeWithoutSomePaths) {
  const auto whole = parse_rank_tree("t", "falcon_vicuna").paths();
  for (const char* name : {"falcon_vicuna_figure", "falcon_height6"}) {
    const auto part = parse_rank_tree("t", name).paths();
    EXPECT_LT(part.size(), whole.size());
    size_t at = 0;
    for (const std::string& path : whole) at += at < part.size() && path == part[at];
    EXPECT_EQ(at, part.size()) << name;
  }
  const auto figure = parse_rank_tree("t", "falcon_vicuna_figure").paths();
  EXPECT_EQ(std::count(figure.begin(), figure.end(), "19."), 0);
  EXPECT_EQ(std::count(whole.begin(), whole.end(), "19."), 1);
}

TEST(RankTree, PathsAndChains) {
  const RankTree tree = parse_rank_tree("t", "0+1+00+0.12+01");
  EXPECT_THAT(tree.parent, ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(tree.rank, ElementsAre(0, 1, 0, 12, 1));
  EXPECT_EQ(tree.width(), 13);
  EXPECT_EQ(tree.first(3).text(), "0+1+00");
  EXPECT_EQ(parse_rank_tree("t", "chain:3").text(), "0+00+000");
  EXPECT_EQ(parse_rank_tree("t", "12.+12.0").text(), "12.+12.0");
}

// A chain, then branches that begin with the first choices.
TEST(RankTree, DelayedTreesBranchAtTheEndOfAChain) {
  EXPECT_EQ(parse_rank_tree("t", "delayed:2:2:2").text(), "0+00+000+001+0000+0010");
  EXPECT_EQ(parse_rank_tree("t", "delayed:3:0:1").text(), "0+1+2");
  EXPECT_EQ(parse_rank_tree("t", "delayed:1:2:3").text(), parse_rank_tree("t", "chain:5").text());
  const RankTree tree = parse_rank_tree("t", "delayed:12:3:4");
  EXPECT_THAT(per_level(tree), ElementsAre(1, 1, 1, 12, 12, 12, 12));
  EXPECT_EQ(parse_rank_tree("t", tree.text()).paths(), tree.paths());
}

TEST(RankTree, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) {
    try {
      parse_rank_tree("medusa", text);
    } catch (const base::Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message("00+0"), HasSubstr("path 00 without 0 before it"));
  EXPECT_THAT(message("0+0"), HasSubstr("path 0 twice"));
  EXPECT_THAT(message("0+x"), HasSubstr("'x'"));
  EXPECT_THAT(message("chain:0"), HasSubstr("no chain"));
  EXPECT_THAT(message("chain:5000"), HasSubstr("chain:5000"));
  EXPECT_THAT(message(""), HasSubstr("a path belongs"));
  for (const char* bad : {"delayed:", "delayed:2", "delayed:2:3", "delayed:2:3:4:5"})
    EXPECT_THAT(message(bad), HasSubstr("is no delayed tree: it has K, L1 and L2")) << bad;
  EXPECT_THAT(message("delayed:0:3:4"), HasSubstr("K and L2 are at least 1"));
  EXPECT_THAT(message("delayed:2:3:0"), HasSubstr("K and L2 are at least 1"));
  EXPECT_THAT(message("delayed:2:x:1"), HasSubstr("has 'x'"));
  EXPECT_THAT(message("delayed:64:8:64"), HasSubstr("more than 1023 nodes"));
  EXPECT_THAT(message("delay"), HasSubstr("delayed:K:L1:L2")) << "in the hint";
  EXPECT_THAT(message("mc_sim"), HasSubstr("mc_sim_7b_63"));  // the hint lists the names
}

}  // namespace
}  // namespace evalrun::tests::rank_tree_test
