// Sequoia's programme against all trees, and against our own choice.
#include "methods/heads/optimal_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "engine/base/rng.h"

namespace evalrun::tests::optimal_tree_test {
namespace {

using methods::AcceptanceTable;
using methods::optimal_tree;
using methods::parse_rank_tree;
using methods::RankTree;
using testing::DoubleEq;
using testing::ElementsAre;

using Path = std::vector<int>;
using Paths = std::set<Path>;

double chance_of(const Path& path, const AcceptanceTable& table) {
  double chance = 1;
  for (size_t level = 0; level < path.size(); ++level)
    chance *= table[level][static_cast<size_t>(path[level])];
  return chance;
}

double tokens_of(const Paths& paths, const AcceptanceTable& table) {
  double sum = 1;
  for (const Path& path : paths) sum += chance_of(path, table);
  return sum;
}

Paths paths_of(const RankTree& tree) {
  Paths paths;
  std::vector<Path> of_node = {{}};
  for (size_t i = 0; i < tree.rank.size(); ++i) {
    Path path = of_node[static_cast<size_t>(tree.parent[i])];
    path.push_back(tree.rank[i]);
    EXPECT_TRUE(paths.insert(path).second) << "a path twice";
    of_node.push_back(path);
  }
  return paths;
}

// What may be added to a tree whose nodes have their first children, without gaps.
std::vector<Path> places(const Paths& paths, const AcceptanceTable& table) {
  std::vector<Path> found;
  const auto look = [&](const Path& parent) {
    if (parent.size() == table.size()) return;
    Path child = parent;
    for (child.push_back(0); paths.count(child) > 0;) ++child.back();
    if (static_cast<size_t>(child.back()) < table[parent.size()].size()) found.push_back(child);
  };
  look({});
  for (const Path& path : paths) look(path);
  return found;
}

// Of all trees of at most n nodes.
double largest_of_all(const AcceptanceTable& table, int n) {
  std::set<Paths> trees = {{}};
  double largest = 1;
  for (int size = 1; size <= n; ++size) {
    std::set<Paths> larger;
    for (const Paths& tree : trees)
      for (const Path& place : places(tree, table)) {
        Paths with = tree;
        with.insert(place);
        largest = std::max(largest, tokens_of(with, table));
        larger.insert(std::move(with));
      }
    trees = std::move(larger);
  }
  return largest;
}

// The rule that the programme is more than: always the likeliest of the places.
Paths by_likeliest_place(const AcceptanceTable& table, int n) {
  Paths tree;
  for (int size = 0; size < n; ++size) {
    const std::vector<Path> open = places(tree, table);
    if (open.empty()) break;
    tree.insert(*std::max_element(open.begin(), open.end(), [&](const Path& a, const Path& b) {
      return chance_of(a, table) < chance_of(b, table);
    }));
  }
  return tree;
}

AcceptanceTable random_table(base::Rng& rng, bool falling) {
  AcceptanceTable table(1 + rng.below(4));
  for (std::vector<double>& row : table) {
    double sum = rng.uniform();
    row.resize(1 + rng.below(3));
    for (double& p : row) {
      p = rng.uniform() < 0.2 ? 0 : rng.uniform();
      sum += p;
    }
    for (double& p : row) p /= sum;
    if (falling) std::sort(row.rbegin(), row.rend());
  }
  return table;
}

TEST(OptimalTree, IsTheBestOfAllTrees) {
  base::Rng rng(5);
  int told_apart = 0;  // from the likeliest places
  for (int round = 0; round < 60; ++round) {
    const AcceptanceTable table = random_table(rng, round % 2 == 0);
    for (int n = 1; n <= 7; ++n) {
      const RankTree tree = optimal_tree(table, n);
      const Paths paths = paths_of(tree);
      EXPECT_LE(tree.size(), n);
      EXPECT_GE(tree.size(), 1);
      for (const Path& path : paths) {
        Path before = path;
        if (before.back()-- > 0) {
          EXPECT_EQ(paths.count(before), 1u) << "a gap before " << path.back();
        }
      }
      const double largest = largest_of_all(table, n);
      EXPECT_NEAR(tokens_of(paths, table), largest, 1e-12) << n;
      told_apart += tokens_of(by_likeliest_place(table, n), table) < largest - 1e-6;
    }
  }
  EXPECT_GT(told_apart, 10) << "a greedy rule would pass";
}

// A choice that is seldom right may stand before one that often is: only a look ahead finds it.
TEST(OptimalTree, TheLikeliestPlaceIsNotEnough) {
  const AcceptanceTable table = {{0.3, 0.01, 0.6}, {0.05}};
  EXPECT_EQ(optimal_tree(table, 3).text(), "0+1+2");
  EXPECT_NEAR(tokens_of(by_likeliest_place(table, 3), table), 1 + 0.3 + 0.015 + 0.01, 1e-12);
}

TEST(OptimalTree, EachLevelHasItsOwnAcceptance) {
  EXPECT_EQ(optimal_tree({{0.5, 0.3}, {0.9}}, 2).text(), "0+00");
  EXPECT_EQ(optimal_tree({{0.5, 0.3}, {0.5, 0.3}}, 2).text(), "0+1");
}

TEST(OptimalTree, AddsNothingForNothing) {
  EXPECT_EQ(optimal_tree({{0.5, 0}, {0.5}}, 9).text(), "0+00");
  EXPECT_EQ(optimal_tree({std::vector<double>{0.0}}, 9).text(), "0") << "but one node there is";
  EXPECT_EQ(optimal_tree({{0.4, 0.3}, {0.2}}, 900).size(), 4) << "there are no more";
}

// Where acceptance falls with the rank the likeliest places are an optimum, at any size.
TEST(OptimalTree, OfFallingRanksTheLikeliestPathsAreAsGood) {
  AcceptanceTable table;
  for (int level = 0; level < 6; ++level)
    table.push_back({0.7 - 0.05 * level, 0.11, 0.06, 0.03, 0.02});
  for (const int n : {1, 5, 17, 60, 150})
    EXPECT_NEAR(tokens_of(paths_of(optimal_tree(table, n)), table),
                tokens_of(by_likeliest_place(table, n), table), 1e-9)
        << n;
}

// The second choice is seldom right here, but what follows it is then nearly sure.
TEST(OptimalTree, KnowsRanksWhereAStoredTreeKnowsPaths) {
  const RankTree stored = parse_rank_tree("t", "0+1+10+00");
  const std::vector<double> gains = {0.5, 0.3, 0.27, 0.1};
  const AcceptanceTable table = methods::positional_acceptance(stored, gains);
  EXPECT_THAT(table, ElementsAre(ElementsAre(DoubleEq(0.5), DoubleEq(0.3)),
                                 ElementsAre(DoubleEq(0.37 / 0.8))));
  EXPECT_EQ(stored.first(3).text(), "0+1+10");
  EXPECT_EQ(optimal_tree(table, 3).text(), "0+1+00");
}

TEST(OptimalTree, RanksThatAreNotStoredAreNeverAccepted) {
  const RankTree stored = parse_rank_tree("t", "0+2+22");
  EXPECT_THAT(methods::positional_acceptance(stored, std::vector<double>{0.5, 0.2, 0.2}),
              ElementsAre(ElementsAre(0.5, 0.0, 0.2), ElementsAre(0.0, 0.0, 1.0)));
}

}  // namespace
}  // namespace evalrun::tests::optimal_tree_test
