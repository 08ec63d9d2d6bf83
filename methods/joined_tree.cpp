#include "methods/joined_tree.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

void JoinedTree::reserve(int nodes) {
  tree_.reserve(nodes);
  acceptance_.reserve(static_cast<size_t>(nodes));
}

void JoinedTree::reset(int32_t root) {
  tree_.reset(root);
  acceptance_.assign(1, 1.0);
}

void JoinedTree::add(const TokenTree& draft, base::FunctionRef<double(int)> acceptance,
                     std::vector<int>& node_of) {
  EVALRUN_CHECK(draft.token[0] == tree_.token[0], "drafts below two roots");
  node_of.assign(draft.token.size(), 0);
  for (size_t i = 1; i < draft.token.size(); ++i) {
    const int parent = node_of[static_cast<size_t>(draft.parent[i])];
    int node = tree_.child(parent, draft.token[i]);
    if (node < 0) {
      node = tree_.add(draft.token[i], parent);
      acceptance_.push_back(0);
    }
    node_of[i] = node;
    double& known = acceptance_[static_cast<size_t>(node)];
    known = std::max(known, acceptance(static_cast<int>(i)));
  }
}

double JoinedTree::surest_first() const {
  double surest = 0;
  for (size_t i = 1; i < tree_.token.size(); ++i)
    if (tree_.parent[i] == 0) surest = std::max(surest, acceptance_[i]);
  return surest;
}

}  // namespace evalrun::methods
