// Draft tokens of one step as a tree. Node 0 is the root: the newest emitted token, not yet in the
// KV cache. parent[i] < i; a chain is a tree with one child per node. Positions and the attention
// mask follow from the parents.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace evalrun::methods {

struct TokenTree {
  std::vector<int32_t> token;   // [n], token[0] = root
  std::vector<int32_t> parent;  // [n], parent[0] = -1
  std::vector<int32_t> level;   // [n], edges from the root; kept by add()

  void reset(int32_t root);  // keeps capacity: no allocation in steady state
  void reserve(int nodes);
  int add(int32_t t, int parent_node);  // returns the new node
  // First child of `parent_node` with this token, -1 when there is none.
  int child(int parent_node, int32_t t) const;
  // First child of `parent_node` after node `after`, -1 when there is none.
  int next_child(int parent_node, int after) const;
  // Whether a path below the root holds these tokens.
  bool holds(std::span<const int32_t> tokens) const;
  // A path below the root. `merge` shares the nodes that exist already, so a prefix that two drafts
  // have in common is computed once.
  void add_path(std::span<const int32_t> tokens, bool merge);
  void truncate(int nodes);  // keeps the first `nodes` nodes, at least the root
  int size() const { return static_cast<int>(token.size()); }
  int drafted() const { return size() - 1; }
  int depth() const;  // longest root path in edges
};

}  // namespace evalrun::methods
