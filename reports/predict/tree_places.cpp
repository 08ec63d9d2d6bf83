#include "reports/predict/tree_places.h"

#include <algorithm>
#include <queue>

#include "engine/base/error.h"

namespace evalrun::reports {

std::optional<double> TreePlaces::chance(const TreePath& path) const {
  double all = 1;
  for (size_t i = 0; i < path.size(); ++i) {
    const auto found = count.find({static_cast<int>(i) + 1, path[i]});
    if (found == count.end()) return std::nullopt;
    all *= found->second.share();
  }
  return all;
}

TreePlaces count_places(std::span<const TracedAnswer> answers) {
  TreePlaces places;
  for (const TracedAnswer& answer : answers)
    for (const TracedTurn& turn : answer.turns) {
      for (const results::StepRecord& s : turn.steps) places.drafted += answer.weight * s.drafted;
      for (const results::NodeCount& n : turn.nodes) {
        const double tested = answer.weight * static_cast<double>(n.tested);
        const double accepted = answer.weight * static_cast<double>(n.accepted);
        PlaceCount& place = places.count[{n.depth, n.rank}];
        place.tested += tested;
        place.accepted += accepted;
        places.tested += tested;
        places.accepted += accepted;
      }
    }
  return places;
}

DraftShape tree_shape(std::span<const TreePath> tree, const TreePlaces& places,
                      const DepthCounts& depths) {
  DraftShape shape;
  std::vector<double>
      reached;  // per depth: probability that a path of this tree is accepted so far
  for (const TreePath& path : tree) {
    const auto chance = places.chance(path);
    const int d = static_cast<int>(path.size());
    EVALRUN_CHECK(chance && d <= depths.depth(), "a path of unknown chance, depth {}", d);
    if (d > shape.depth()) {
      shape.nodes.resize(path.size());
      reached.resize(path.size());
    }
    ++shape.nodes[path.size() - 1];
    reached[path.size() - 1] += *chance;
  }
  // The stored steps say how deep the measured tree got; of that, this one keeps its share.
  for (int d = 1; d <= shape.depth(); ++d) {
    const auto i = static_cast<size_t>(d - 1);
    const double before = d > 1 ? reached[i - 1] : 1;
    const double here = before > 0 ? reached[i] / before : 0;
    const double measured = depths.share(d);
    shape.kept.push_back(measured > 0 ? std::min(1.0, here / measured) : 0);
  }
  return shape;
}

std::vector<RankedPath> best_paths(const TreePlaces& places, int n) {
  const auto worse = [](const RankedPath& a, const RankedPath& b) {
    return a.gain != b.gain ? a.gain < b.gain : a.path > b.path;
  };
  std::priority_queue<RankedPath, std::vector<RankedPath>, decltype(worse)> open(worse);
  const auto add_children = [&](const TreePath& parent, double chance) {
    const int depth = static_cast<int>(parent.size()) + 1;
    for (auto it = places.count.lower_bound({depth, 0});
         it != places.count.end() && it->first.first == depth; ++it) {
      TreePath path = parent;
      path.push_back(it->first.second);
      if (const double gain = chance * it->second.share(); gain > 0)
        open.push({std::move(path), gain});
    }
  };
  add_children({}, 1);
  std::vector<RankedPath> best;
  while (!open.empty() && static_cast<int>(best.size()) < n) {
    best.push_back(open.top());
    open.pop();
    add_children(best.back().path, best.back().gain);
  }
  return best;
}

}  // namespace evalrun::reports
