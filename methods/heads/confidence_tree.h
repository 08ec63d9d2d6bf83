// Draft trees that follow the drafter's confidence (EAGLE-2, Li et al. 2024, arXiv 2406.16858): the
// product of its probabilities along the path. Every level goes on from the `k` surest nodes of the
// level before; of all nodes that were seen the surest become the draft. `total` nodes, or as many
// as pay: those whose probability is worth their row at this machine's T(n)/T(1).
//
// With `delta` the depth follows the text: OPT-Tree (methods/heads/opt_growth.h), whose tree of n
// nodes is k = total = n: it looks at n choices after each of a level's n likeliest nodes. The
// published program takes a forward more, whose tokens it drops: it looks at a level's gain when
// the next is drafted. With its max_depth of d it has at most d - 1 levels.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "methods/adaptive.h"
#include "methods/heads/opt_growth.h"
#include "methods/registration.h"
#include "methods/token_tree.h"

namespace evalrun::methods {

class ConfidenceTree {
 public:
  struct Options {
    int k = 10;      // children looked at after each node, nodes a level goes on from
    int levels = 6;  // of the tree
    int total = 0;   // draft nodes; 0 = as many as pay
    // A further level where the last one raised what `total` nodes are expected to give by more
    // than this; 0 = all levels. Not with total 0.
    double delta = 0;
  };
  ConfidenceTree(const Options& options, const engine::RowCostTable* costs);

  struct Node {
    int32_t token;
    int parent;       // node, -1 = the root
    int from;         // the drafter's own: where the token was read
    double log_prob;  // of the path
  };
  // Before each step; `cost` of drafting the first level, in plain steps.
  void clear(double cost);
  // One of the choices after `parent`, with the drafter's own log probability.
  void add(int parent, int from, int32_t token, double log_prob);
  const Node& node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  // The nodes added since the last call that the next level goes on from, surest first. Empty where
  // one more level cannot pay or the last one gained too little (delta). It takes a forward of the
  // drafter of `rows` rows a node, which costs `cost` plain steps with one row; 0 = none. Valid
  // until the next call.
  std::span<const int> next_level(double cost, int rows);
  // The draft. Parents stand before their children.
  void choose(TokenTree& tree);
  const Options& options() const { return options_; }
  // Of a method that drafts this tree by at least one forward, of `draft_rows` at most. Each costs
  // `cost` plain steps with one row.
  LargestStep largest_step(double cost, std::vector<int> draft_rows) const;

 private:
  void sort_by_probability(size_t begin, size_t end);
  bool worth_a_level(double cost, int rows);

  const Options options_;
  RowPrice price_;
  OptGrowth growth_;      // where there is a delta
  double row_worth_ = 0;  // least a further row costs, in plain steps
  double spent_ = 0;      // on drafting this step, in plain steps
  size_t level_begin_ = 0;
  std::vector<Node> nodes_;
  std::vector<int> order_, expanded_, node_of_;
};

}  // namespace evalrun::methods
