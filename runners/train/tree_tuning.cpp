#include "runners/train/tree_tuning.h"

#include <algorithm>

#include "engine/base/error.h"
#include "methods/speculative_method.h"

namespace evalrun::runners {

void TreeCounts::watch(methods::DecodingMethod& method) {
  auto* speculative = dynamic_cast<methods::SpeculativeMethod*>(&method);
  if (speculative == nullptr)
    throw base::usage_error("this method drafts no tree", "tune medusa, eagle or falcon");
  speculative->set_verdict_hook([this](const methods::SpeculativeMethod::Verdict& verdict) {
    ++steps_;
    std::vector<int> ranks;
    for (size_t level = 1; level < verdict.path.size(); ++level) {
      const int node = verdict.path[level], parent = verdict.path[level - 1];
      int rank = 0;  // its place among its siblings
      for (int i = parent + 1; i < node; ++i)
        rank += verdict.tree.parent[static_cast<size_t>(i)] == parent;
      ranks.push_back(rank);
      ++accepted_[ranks];
    }
  });
}

std::vector<TreeCounts::Path> TreeCounts::best(int n) const {
  std::vector<Path> paths;
  for (const auto& [ranks, count] : accepted_)
    paths.push_back({ranks, static_cast<double>(count) / static_cast<double>(steps_)});
  // Equal counts: the shorter first, so that parents come first.
  std::stable_sort(paths.begin(), paths.end(), [](const Path& a, const Path& b) {
    return a.gain != b.gain ? a.gain > b.gain : a.ranks.size() < b.ranks.size();
  });
  if (paths.size() > static_cast<size_t>(n)) paths.resize(static_cast<size_t>(n));
  return paths;
}

methods::RankTree tree_of(const std::vector<TreeCounts::Path>& paths, int n) {
  methods::RankTree tree;
  std::map<std::vector<int>, int> node_of{{{}, 0}};
  for (int i = 0; i < std::min(n, static_cast<int>(paths.size())); ++i) {
    const std::vector<int>& ranks = paths[static_cast<size_t>(i)].ranks;
    const auto parent = node_of.find(std::vector<int>(ranks.begin(), ranks.end() - 1));
    EVALRUN_CHECK(parent != node_of.end(), "a path before its parent");
    tree.add(parent->second, ranks.back());
    node_of.emplace(ranks, tree.size());
  }
  return tree;
}

}  // namespace evalrun::runners
