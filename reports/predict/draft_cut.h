// What a shorter or smaller draft would have done along the answers of an arm: the stored steps say
// of every emitted token whether a draft had it, and the answers are walked once more in other
// steps.
//
// A step that accepts fewer tokens than before ends earlier, and the next one begins where no
// stored step began. What it drafts there is known as far as the stored step got: its tokens were
// accepted, so a drafter that sees the text so far says them again. Where the stored step erred, a
// drafter errs again, unless it now looks there from nearer by. Drafts get worse with depth, and
// the measured fall of alpha_cond with depth says by how much. Nobody has seen what would follow a
// wholly accepted draft. It is taken to be accepted as often as the tokens in the deeper half of
// the drafts. Expectations are exact under these assumptions, nothing is drawn.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "reports/predict/step_trace.h"

namespace evalrun::reports {

// A draft of one shape in every step; fewer levels where the answer's limit leaves no room.
struct DraftShape {
  std::vector<int> nodes;    // [depth - 1] nodes of that depth; a chain has one
  std::vector<double> kept;  // [depth - 1] of what the measured drafts get right there after a
                             // path this one holds, the share it gets right, too; a chain: 1
  int depth() const { return static_cast<int>(nodes.size()); }
  int nodes_within(int levels) const;
};
DraftShape chain_shape(int length);

// alpha_cond of an arm as counts: index = depth - 1. After the cut of a truncated step nothing is
// known.
struct DepthCounts {
  std::vector<double> tested, accepted;
  int depth() const { return static_cast<int>(tested.size()); }
  double share(int d) const;  // 0 where nothing was tested; the last one beyond the last depth
};
DepthCounts count_depths(std::span<const TracedAnswer> answers);

// The least change to `values` (by weighted squares) after which none is larger than the one in
// front of it.
std::vector<double> falling(std::span<const double> values, std::span<const double> weights);

class DraftCut {
 public:
  // `max_new`: tokens of an answer at most, as in the run. Answers must have steps.
  DraftCut(std::span<const TracedAnswer> answers, int max_new);
  int depth() const { return counts_.depth(); }
  const DepthCounts& counts() const { return counts_; }

  // Called for every place where a step may begin: how likely one does, with this many rows after a
  // draft of this depth (0 = nothing drafted).
  using Visit = std::function<void(double share, int rows, int draft_depth)>;
  // The turn in steps of another shape, not deeper than depth().
  void replay(const TracedTurn& turn, const DraftShape& shape, const Visit& visit) const;

 private:
  enum class Fate { kAccepted, kRefused, kBehind, kUndrafted };
  // An emitted token and what the stored step's draft had to say about it.
  struct Place {
    Fate fate;
    int depth;  // in that draft, 1 = first
    int left;   // drafted tokens from here on where the draft ended by itself, else -1
  };
  std::vector<Place> places(const TracedTurn& turn) const;
  // That a draft token of `depth` is right at this place, the ones before it being right.
  double chance(const Place& place, int depth) const;

  int max_new_;
  DepthCounts counts_;
  // alpha_cond without its rises; at depth 1 that of steps after one that accepted draft tokens,
  // because steps begin anew only in such places.
  std::vector<double> by_depth_;
  double behind_ = 0;  // probability of a token after a wholly accepted draft
};

}  // namespace evalrun::reports
