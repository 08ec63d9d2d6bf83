// A draft tree by rank that follows what is accepted in this answer: of all trees with so many
// nodes the one whose nodes are likeliest to be reached, and as many nodes as are asked for or as
// pay here (T(n)/T(1), methods/adaptive.h).
//
// The model: the r-th child of a node is the target's token with probability a(level, r), given
// that the target gets to the node and that none of the r before it was. So it is the child's
// number among those drawn, or ranked, that counts, and not its token. A tree depends on earlier
// steps alone: drafts that are drawn fill it without their law being changed.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "methods/adaptive.h"
#include "methods/heads/rank_tree.h"
#include "methods/token_tree.h"

namespace evalrun::methods {

class GrownTree {
 public:
  struct Limits {
    int levels = 1, width = 1, nodes = 1;
  };
  // With a price a tree has the number of nodes n, 1..nodes, with the largest
  //   (1 + sum of the nodes' probabilities) / price(1 + n),
  // without one as many as there may be.
  GrownTree(const Limits& limits, std::optional<RowPrice> price);
  void start();  // forgets what was accepted
  // Siblings stand in the order of their ranks, without gaps. Valid until the next call.
  const RankTree& grow();
  // What came of a draft: `path` as in Drafter::accepted(). A child's rank is its place among its
  // siblings in `tree`.
  void note(const TokenTree& tree, std::span<const int> path);
  // Of the child of this rank at this level (1..): that it is the target's token.
  double chance(int level, int rank) const;

 private:
  struct Cell {
    double tested, accepted;
  };
  struct Place {  // where a node may be added
    double joint;
    int parent, rank, order;
  };
  static bool later(const Place& a, const Place& b);
  size_t cell(int level, int rank) const;
  void offer(int parent, int rank);
  int worthwhile() const;

  const Limits limits_;
  const std::optional<RowPrice> price_;
  std::vector<Cell> cells_;  // [levels, width]
  RankTree tree_;
  std::vector<double> joint_;  // [node], the root's 1
  std::vector<Place> open_;    // a heap, the likeliest on top
  int offered_ = 0;
};

}  // namespace evalrun::methods
