// Sequoia's tree (Chen et al. 2024, arXiv 2402.12374, section 3.1.1 and Algorithm 4 of its appendix
// F.1.1): of all trees of so many nodes the one that is expected to give the most tokens, if what
// accepts a child depends on its rank and its depth alone (positional acceptance). Found once, by
// dynamic programming, and exact.
//
// What differs: the paper measures the acceptance of ranks on its own. Here it follows from the
// gains of a stored tree (`evalrun tune tree`), which count whole paths. A child that is not stored
// tells nothing, so rare ones look a little better than they are. The paper's optimiser then picks
// size and depth by the hardware; here the size is given and the depth is the stored tree's.
//
// Where acceptance falls with the rank, the n likeliest paths are an optimal tree too. So on the
// same table the programme gains nothing over our own choice, which takes the n likeliest paths as
// they were counted. The two differ by the assumption alone.
#pragma once
#include <span>
#include <vector>

#include "methods/heads/rank_tree.h"

namespace evalrun::methods {

// [level - 1][rank]: probability that a child is accepted, given that its parent is. Siblings
// exclude each other, so a level's sum is at most 1.
using AcceptanceTable = std::vector<std::vector<double>>;

// From how often all of each path was accepted (`gains`, one for each node of the tree): over the
// nodes of a level and rank, their gains to those of their parents. 0 where the tree has none.
AcceptanceTable positional_acceptance(const RankTree& tree, std::span<const double> gains);

// The tree of at most `nodes` (>= 1) nodes with the largest sum of its paths' probabilities. As in
// the paper a node's children have the first ranks, without gaps. Fewer nodes where no further one
// adds to the sum. Level by level, siblings in the order of their ranks.
RankTree optimal_tree(const AcceptanceTable& acceptance, int nodes);

}  // namespace evalrun::methods
