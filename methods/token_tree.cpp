#include "methods/token_tree.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

void TokenTree::reset(int32_t root) {
  token.assign(1, root);
  parent.assign(1, -1);
  level.assign(1, 0);
}

void TokenTree::reserve(int nodes) {
  const auto n = static_cast<size_t>(nodes);
  token.reserve(n);
  parent.reserve(n);
  level.reserve(n);
}

int TokenTree::add(int32_t t, int parent_node) {
  EVALRUN_CHECK(parent_node >= 0 && parent_node < size(), "parent {} of {} nodes", parent_node,
                size());
  token.push_back(t);
  parent.push_back(parent_node);
  level.push_back(level[static_cast<size_t>(parent_node)] + 1);
  return size() - 1;
}

int TokenTree::child(int parent_node, int32_t t) const {
  for (int i = parent_node + 1; i < size(); ++i)
    if (parent[static_cast<size_t>(i)] == parent_node && token[static_cast<size_t>(i)] == t)
      return i;
  return -1;
}

int TokenTree::next_child(int parent_node, int after) const {
  for (int i = std::max(after, parent_node) + 1; i < size(); ++i)
    if (parent[static_cast<size_t>(i)] == parent_node) return i;
  return -1;
}

bool TokenTree::holds(std::span<const int32_t> tokens) const {
  int node = 0;
  for (size_t i = 0; i < tokens.size() && node >= 0; ++i) node = child(node, tokens[i]);
  return node >= 0;
}

void TokenTree::add_path(std::span<const int32_t> tokens, bool merge) {
  int node = 0;
  for (const int32_t t : tokens) {
    const int there = merge ? child(node, t) : -1;
    node = there >= 0 ? there : add(t, node);
  }
}

void TokenTree::truncate(int nodes) {
  // Parents stand before their children, so what is left is a tree.
  const auto n = static_cast<size_t>(std::max(nodes, 1));
  if (n >= token.size()) return;
  token.resize(n);
  parent.resize(n);
  level.resize(n);
}

int TokenTree::depth() const { return *std::max_element(level.begin(), level.end()); }

}  // namespace evalrun::methods
