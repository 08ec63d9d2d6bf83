// Draft trees by rank, as Medusa, EAGLE-1 and Falcon publish theirs: which of a drafter's ranked
// choices become nodes, the same in every step. A path is the ranks of the choices from the root:
// "01" is the second choice after the first one, "0.12" the thirteenth.
//
// delayed:K:L1:L2 is the shape of delayed tree expansion (Thomas et al. 2026, arXiv 2602.16994,
// section 5, Definition 5.2): a chain of L1 nodes, and only then K branches, chains of L2 nodes
// each; L1 = 0 branches at the root. What differs: the paper's K paths are drawn independently and
// may begin alike, here they begin with the K first choices. Its network that picks K, L1 and L2
// anew in each step is not here.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::methods {

struct RankTree {
  // Node i + 1 of the draft (node 0 is the root); parents come before their children.
  std::vector<int> parent;  // [n] 0 = the root
  std::vector<int> rank;    // [n]
  std::vector<int> level;   // [n] edges from the root
  int size() const { return static_cast<int>(rank.size()); }
  int depth() const;  // longest path
  int width() const;  // largest rank + 1
  void add(int parent_node, int node_rank);
  RankTree first(int n) const;  // its first n nodes: connected, as parents stand in front
  std::vector<std::string> paths() const;
  std::string text() const;  // as parse_rank_tree() reads it
};

// `text`: a published tree by name (tree_names()), chain:N, delayed:K:L1:L2, or paths joined by '+'
// ("0+00+1+01"); a parent comes before its children. Throws usage_error that names `who` and the
// path.
RankTree parse_rank_tree(const std::string& who, std::string_view text);
RankTree rank_tree(const std::string& who, std::span<const std::string> paths);
std::vector<std::string> tree_names();

}  // namespace evalrun::methods
