// Whole paths tested at once: the recursion that methods/verifier.h states.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/residual.h"
#include "methods/verifier.h"

namespace evalrun::methods {

struct Verifier::PathWalk {
  const TokenTree& tree;
  const TargetView& target;
  QOf q_of;
  UniformSource& uniform;
  int deepest;  // nodes of deeper levels are not looked at
  int end = 0;  // of the accepted path
};

// Whether a path through `node`, or the one that ends there, is accepted: that has the probability
// `share`. Then walk.end is its end, and the end's level has what the bonus is drawn from.
bool Verifier::accept_path(PathWalk& walk, int node, double share) {
  if (!(share > 0)) return false;
  const TokenTree& tree = walk.tree;
  const int depth = tree.level[static_cast<size_t>(node)];
  PathLevel& here = levels_[static_cast<size_t>(depth)];
  here.drawn = false;
  int child = depth < walk.deepest ? tree.next_child(node, node) : -1;
  const bool inner = child >= 0;
  if (inner) engine::warp(walk.target.logits(node), sampling_, here.p, scratch_);
  const bool one = rule_.iid_paths > 0;
  if (inner && one) child = next_of_taken(walk, node, here);
  for (; child >= 0 && share > 0; child = one ? -1 : tree.next_child(node, child))
    if (accept_below(walk, child, here, share)) return true;
  if (node > 0) {
    walk.uniform.at_path(node);
    if (!walk.uniform.accept(share, 1.0)) return false;
  }
  // Nothing follows a path of the deepest level: its last token is the bonus.
  if (depth < walk.deepest && (!inner || rule_.whole_bonus))
    engine::warp(walk.target.logits(node), sampling_, here.p, scratch_);
  walk.end = node;
  return true;
}

// Of several paths: the child that the taken one has. Leaves its law in here.q.
int Verifier::next_of_taken(const PathWalk& walk, int node, PathLevel& here) {
  const TokenTree& tree = walk.tree;
  const int first = tree.next_child(node, node);
  sibling_tokens_.clear();
  for (int child = first; child >= 0; child = tree.next_child(node, child))
    sibling_tokens_.push_back(tree.token[static_cast<size_t>(child)]);
  const std::span<const double> q = walk.q_of(first);
  EVALRUN_CHECK(!q.empty(), "node {}: one of several drawn paths has no distribution", first);
  const size_t taken = greedy_paths_.step(here.p, q, sibling_tokens_, here.q);
  here.drawn = true;
  return tree.child(node, sibling_tokens_[taken]);
}

// The paths through one child of the node whose level is `here`. Where none is accepted, `here` and
// `share` become what is left of the target's distribution and of the node's own probability.
bool Verifier::accept_below(PathWalk& walk, int child, PathLevel& here, double& share) {
  const auto token = static_cast<size_t>(walk.tree.token[static_cast<size_t>(child)]);
  EVALRUN_CHECK(token < here.p.size(), "draft token {} of {}", token, here.p.size());
  const std::span<const double> given = walk.q_of(child);
  double left;
  if (given.empty()) {
    if (accept_path(walk, child, share * here.p[token])) return true;
    left = exclude(here.p, share, token);
  } else {
    // A copy, because a look at another node may change what `given` views.
    if (rule_.iid_paths == 0 && (!here.drawn || siblings_ == Siblings::kIndependent))
      here.q.assign(given.begin(), given.end());
    here.drawn = true;
    EVALRUN_CHECK(token < here.q.size() && here.q[token] > 0,
                  "the drafter reports no probability for the token {} it drew", token);
    const double mass = engine::sum(here.q);
    const double wanted = rule_.accept_scale * share * here.p[token];
    if (accept_path(walk, child, std::min(1.0, wanted * mass / here.q[token]))) return true;
    left = subtract(here.p, share, here.q, mass, rule_.accept_scale);
    if (siblings_ == Siblings::kWithoutReplacement) here.q[token] = 0;
  }
  // At least 1 - share of all draws come here. None does but by rounding where there is neither.
  const double refused = left + (1 - share);
  if (refused > 0) share = left / refused;
  return false;
}

Verifier::Result Verifier::verify_paths(const TokenTree& tree, const TargetView& target, QOf q_of,
                                        UniformSource& uniform, int max_accepted) {
  levels_.resize(std::max(levels_.size(), static_cast<size_t>(tree.depth()) + 1));
  greedy_paths_.start();
  PathWalk walk{tree, target, q_of, uniform, max_accepted + 1};
  const bool accepted = accept_path(walk, 0, 1);
  EVALRUN_CHECK(accepted, "the root was not accepted");
  alive_.assign(1, walk.end);
  note_path(tree);
  const auto end = static_cast<size_t>(walk.end);
  if (tree.level[end] == walk.deepest) {
    path_.pop_back();
    return {path_, tree.token[end]};
  }
  uniform.at(tree.level[end]);
  return {path_, uniform.draw(levels_[static_cast<size_t>(tree.level[end])].p)};
}

}  // namespace evalrun::methods
