#include "methods/heads/optimal_tree.h"

#include <algorithm>
#include <limits>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

constexpr double kNoTree = -std::numeric_limits<double>::infinity();

// The programme for nodes of one level. `best[m]`: largest expected tokens of a subtree of m nodes
// with such a node as its root, which counts 1; kNoTree where there is no such subtree.
struct LevelPlan {
  std::vector<double> best;                 // [size]
  std::vector<int> children;                // [size] of its root
  std::vector<std::vector<int>> last_size;  // [children][size] nodes below the last child and it
};

LevelPlan leaves(size_t sizes) {
  LevelPlan plan;
  plan.best.assign(sizes, kNoTree);
  plan.best[1] = 1;
  plan.children.assign(sizes, 0);
  plan.last_size.assign(1, {});
  return plan;
}

// `acceptance` of the children, whose own subtrees `below` knows.
LevelPlan level_above(const LevelPlan& below, const std::vector<double>& acceptance) {
  const size_t sizes = below.best.size();
  LevelPlan plan = leaves(sizes);
  std::vector<double> before(plan.best), with(sizes);  // one child fewer; with all of them
  for (size_t child = 0; child < acceptance.size(); ++child) {
    std::vector<int> last(sizes, 0);
    std::fill(with.begin(), with.end(), kNoTree);
    for (size_t m = 2; m < sizes; ++m)
      for (size_t k = 1; k < m; ++k) {
        if (below.best[k] == kNoTree || before[m - k] == kNoTree) continue;
        const double value = before[m - k] + acceptance[child] * below.best[k];
        if (value <= with[m]) continue;
        with[m] = value;
        last[m] = static_cast<int>(k);
      }
    for (size_t m = 2; m < sizes; ++m)
      if (with[m] > plan.best[m]) {
        plan.best[m] = with[m];
        plan.children[m] = static_cast<int>(child) + 1;
      }
    plan.last_size.push_back(std::move(last));
    before = with;
  }
  return plan;
}

// Nodes of the subtree of each child, by rank, where the root's subtree has `size`.
std::vector<size_t> child_sizes(const LevelPlan& plan, size_t size) {
  std::vector<size_t> sizes(static_cast<size_t>(plan.children[size]));
  for (size_t child = sizes.size(); child > 0; --child) {
    const auto last = static_cast<size_t>(plan.last_size[child][size]);
    sizes[child - 1] = last;
    size -= last;
  }
  return sizes;
}

}  // namespace

AcceptanceTable positional_acceptance(const RankTree& tree, std::span<const double> gains) {
  EVALRUN_CHECK(gains.size() == tree.rank.size(), "{} gains of {} nodes", gains.size(),
                tree.rank.size());
  AcceptanceTable reached(static_cast<size_t>(tree.depth())), taken = reached;
  for (size_t i = 0; i < gains.size(); ++i) {
    const auto level = static_cast<size_t>(tree.level[i]) - 1;
    const auto rank = static_cast<size_t>(tree.rank[i]);
    if (taken[level].size() <= rank) {
      taken[level].resize(rank + 1);
      reached[level].resize(rank + 1);
    }
    const auto parent = static_cast<size_t>(tree.parent[i]);
    reached[level][rank] += parent == 0 ? 1 : gains[parent - 1];
    taken[level][rank] += gains[i];
  }
  for (size_t level = 0; level < taken.size(); ++level)
    for (size_t rank = 0; rank < taken[level].size(); ++rank)
      taken[level][rank] =
          reached[level][rank] > 0 ? std::min(1.0, taken[level][rank] / reached[level][rank]) : 0;
  return taken;
}

RankTree optimal_tree(const AcceptanceTable& acceptance, int nodes) {
  EVALRUN_CHECK(nodes >= 1, "{} nodes", nodes);
  std::vector<LevelPlan> plans(acceptance.size() + 1);  // [level], the root's first
  plans.back() = leaves(static_cast<size_t>(nodes) + 2);
  for (size_t level = acceptance.size(); level > 0; --level)
    plans[level - 1] = level_above(plans[level], acceptance[level - 1]);
  const std::vector<double>& best = plans.front().best;
  // Of the root and one node at least. The first of the largest: the smallest such tree.
  const auto largest = std::max_element(best.begin() + 2, best.end());
  if (*largest == kNoTree) return {};
  const auto size = static_cast<size_t>(largest - best.begin());

  RankTree tree;
  std::vector<size_t> sizes = {size};  // [node] of its subtree
  for (size_t node = 0; node < sizes.size(); ++node) {
    const auto level = node == 0 ? 0 : static_cast<size_t>(tree.level[node - 1]);
    const std::vector<size_t> below = child_sizes(plans[level], sizes[node]);
    for (size_t rank = 0; rank < below.size(); ++rank) {
      tree.add(static_cast<int>(node), static_cast<int>(rank));
      sizes.push_back(below[rank]);
    }
  }
  return tree;
}

}  // namespace evalrun::methods
