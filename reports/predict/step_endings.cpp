#include "reports/predict/step_endings.h"

#include <algorithm>
#include <cstdint>

namespace evalrun::reports {

using results::NodeCount;
using results::StepRecord;

StepEndings::StepEndings(const TracedTurn& turn) {
  for (const StepRecord& s : turn.steps) {
    const auto at = static_cast<size_t>(s.accepted);
    if (depths_.size() <= at) depths_.resize(at + 1);
    if (is_truncated(s)) continue;
    AtDepth& here = depths_[at];
    if (s.accepted >= s.drafted_depth) {
      ++here.whole;
      continue;
    }
    ++here.open, ++here.most;
    // The root has children, and in a chain every node but the last.
    here.least += s.accepted == 0 || s.drafted == s.drafted_depth;
  }
  if (!turn.nodes.empty()) look_at_nodes(turn);  // old files have none
}

// Walks that had a child at a depth, less those that accepted one there.
void StepEndings::look_at_nodes(const TracedTurn& turn) {
  const size_t n = depths_.size();
  std::vector<int64_t> asked(n + 1), passed(n + 1), accepted(n + 1);  // by depth
  for (const NodeCount& node : turn.nodes) {
    const auto depth = static_cast<size_t>(node.depth);
    if (depth > n) continue;
    if (node.rank == 0) asked[depth] += node.tested;
    passed[depth] += node.accepted;
  }
  const StepRecord* cut = nullptr;
  for (const StepRecord& s : turn.steps) {
    for (size_t d = 1; d <= static_cast<size_t>(s.accepted); ++d) ++accepted[d];
    if (is_truncated(s)) cut = &s;
  }
  // Nodes are counted before the stop rule cuts. So they know how far the walk of the cut step
  // went.
  const size_t kept = cut != nullptr ? static_cast<size_t>(cut->accepted) : n;
  size_t end = kept;
  while (end < n && passed[end + 1] > accepted[end + 1]) ++end;
  // At kDepths all deeper nodes are counted as well.
  for (size_t d = 1; d <= n && d < static_cast<size_t>(NodeCount::kDepths); ++d) {
    int64_t most = asked[d] - accepted[d];
    if (kept < d && d <= end) --most;  // accepted by the cut step
    int64_t least = most;
    if (cut != nullptr && d == end + 1 && static_cast<size_t>(cut->drafted_depth) > end) {
      --least;  // the cut step may have been asked here, and in a chain it was
      if (cut->drafted == cut->drafted_depth) --most;
    }
    AtDepth& here = depths_[d - 1];
    const auto within = [&](int64_t count) {
      return static_cast<int>(std::clamp<int64_t>(count, 0, here.open));
    };
    here.least = within(least), here.most = within(most);
  }
}

Ending StepEndings::of(const StepRecord& s) const {
  if (is_truncated(s)) return Ending::kCut;
  if (s.accepted >= s.drafted_depth) return Ending::kNotDrafted;
  const AtDepth& here = depths_[static_cast<size_t>(s.accepted)];
  return here.least == here.open ? Ending::kRefused
         : here.most == 0        ? Ending::kNotDrafted
                                 : Ending::kUnclear;
}

}  // namespace evalrun::reports
