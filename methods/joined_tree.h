// One tree of the drafts of several drafters (methods/joined_draft.h).
#pragma once
#include <cstdint>
#include <vector>

#include "engine/base/function_ref.h"
#include "methods/token_tree.h"

namespace evalrun::methods {

// Drafts below one root, each path of tokens once.
class JoinedTree {
 public:
  void reserve(int nodes);
  void reset(int32_t root);
  // `acceptance(i)`: of node i of the draft, given that its parent is accepted. `node_of` becomes
  // the node here of each node there.
  void add(const TokenTree& draft, base::FunctionRef<double(int)> acceptance,
           std::vector<int>& node_of);
  const TokenTree& tree() const { return tree_; }
  double acceptance(int node) const { return acceptance_[static_cast<size_t>(node)]; }
  // Largest acceptance of a first token; 0 without a draft.
  double surest_first() const;

 private:
  TokenTree tree_;
  std::vector<double> acceptance_;  // [node], 1 for the root
};

}  // namespace evalrun::methods
