// How the steps of a turn ended. In a tree a walk may end at a leaf of a short branch, where
// nothing was asked, and a stored step does not say so. The turn's counts of nodes do, by depth:
// all children of a node on a walk are tested, so the first children count the walks that had any.
#pragma once
#include <span>
#include <vector>

#include "reports/predict/step_trace.h"

namespace evalrun::reports {

// Cut by the stop rule: it has no token of the target.
inline bool is_truncated(const results::StepRecord& s) { return s.emitted <= s.accepted; }

enum class Ending {
  kRefused,     // the target chose none of the next draft tokens
  kNotDrafted,  // there were none
  kUnclear,     // one of these two
  kCut,         // by the stop rule
};

class StepEndings {
 public:
  // Steps that came to a depth and accepted nothing there; cut ones are left out.
  struct AtDepth {
    int whole = 0;            // no path of the draft was longer
    int open = 0;             // one was
    int least = 0, most = 0;  // of the open ones were refused; the others were at a leaf
  };

  explicit StepEndings(const TracedTurn& turn);
  Ending of(const results::StepRecord& s) const;               // a step of the turn
  std::span<const AtDepth> depths() const { return depths_; }  // [depth - 1]

 private:
  void look_at_nodes(const TracedTurn& turn);
  std::vector<AtDepth> depths_;
};

}  // namespace evalrun::reports
