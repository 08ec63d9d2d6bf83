// Draft nodes by their place in the tree (depth, and rank among siblings): how often each came
// true, what a tree of some of these places would accept, and the best one of n nodes.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/predict/draft_cut.h"

namespace evalrun::reports {

// Ranks from the root: {0, 2} is the third choice after the first one.
using TreePath = std::vector<int>;

struct PlaceCount {
  double tested = 0, accepted = 0;  // weighted as the answers are
  double share() const { return tested > 0 ? accepted / tested : 0; }
};

struct TreePlaces {
  std::map<std::pair<int, int>, PlaceCount> count;  // (depth, rank)
  double drafted = 0, tested = 0, accepted = 0;     // nodes, of all steps
  // Probability that all of a path is accepted: the product of its places' shares, as if it
  // mattered only how deep a parent is and not which one. nullopt where one of the places was never
  // tested.
  std::optional<double> chance(const TreePath& path) const;
};
TreePlaces count_places(std::span<const TracedAnswer> answers);

// A tree of paths whose probabilities are known, not deeper than `depths`, as a shape. Parents need
// not come before their children.
DraftShape tree_shape(std::span<const TreePath> tree, const TreePlaces& places,
                      const DepthCounts& depths);

// Best first, connected: of all paths over tested places the n with the largest chance (each step
// of the search takes the likeliest one whose parent is taken).
struct RankedPath {
  TreePath path;
  double gain = 0;  // in tau, under the assumption of chance()
};
std::vector<RankedPath> best_paths(const TreePlaces& places, int n);

}  // namespace evalrun::reports
