#include "methods/verifier.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "methods/residual.h"

namespace evalrun::methods {
namespace {

int nth_child(const TokenTree& tree, int node, int n) {
  int child = tree.next_child(node, node);
  for (; n > 0 && child >= 0; --n) child = tree.next_child(node, child);
  EVALRUN_CHECK(child >= 0, "node {} has no child {}", node, n);
  return child;
}

// Whether a node comes from a known distribution.
bool any_drawn(const TokenTree& tree, QOf q_of) {
  for (int node = 1; node < tree.size(); ++node)
    if (!q_of(node).empty()) return true;
  return false;
}

}  // namespace

int32_t TargetView::top(int node) const {
  const int32_t token = top_ ? (*top_)(node) : engine::argmax((*logits_)(node));
  EVALRUN_CHECK(token >= 0, "node {}: the forward was not asked for a top token", node);
  return token;
}

int32_t TargetView::drawn(int node) const {
  const int32_t token = (*drawn_)(node);
  EVALRUN_CHECK(token >= 0, "node {}: the forward was not asked for a draw", node);
  return token;
}

std::span<const float> TargetView::logits(int node) const {
  EVALRUN_CHECK(logits_.has_value(), "node {}: the target was asked for tokens only", node);
  return (*logits_)(node);
}

int32_t UniformSource::draw_token(std::span<const float> logits,
                                  const engine::SamplingParams& sampling,
                                  engine::WarpScratch& scratch) {
  engine::warp(logits, sampling, scratch.weights, scratch);
  return draw(scratch.weights);
}

// The children of all nodes alive that hold `token`, into next_. One pass over the tree, as parents
// stand before their children.
void Verifier::match(const TokenTree& tree, int32_t token) {
  next_.clear();
  for (int i = alive_.front() + 1; i < tree.size(); ++i)
    if (tree.token[static_cast<size_t>(i)] == token &&
        std::binary_search(alive_.begin(), alive_.end(), tree.parent[static_cast<size_t>(i)]))
      next_.push_back(i);
}

void Verifier::note_path(const TokenTree& tree) {
  path_.clear();
  for (int node = alive_.front(); node > 0; node = tree.parent[static_cast<size_t>(node)])
    path_.push_back(node);
  std::reverse(path_.begin(), path_.end());
}

// Multi-candidate rejection, with one child plain rejection sampling: tests the children in the
// order they were drawn; returns the accepted one or -1, and leaves in p_ the distribution the
// bonus is drawn from.
int Verifier::accept_child(const TokenTree& tree, int node, QOf q_of, UniformSource& uniform) {
  std::span<const double> dist;  // what this child was drawn from, not normalised
  for (int child = tree.next_child(node, node); child >= 0; child = tree.next_child(node, child)) {
    const auto token = static_cast<size_t>(tree.token[static_cast<size_t>(child)]);
    EVALRUN_CHECK(token < p_.size(), "draft token {} of {}", token, p_.size());
    const std::span<const double> q = q_of(child);
    if (q.empty()) {
      if (uniform.accept(p_[token], 1.0)) return child;
      exclude(p_, 1, token);
      continue;
    }
    if (dist.empty() || siblings_ == Siblings::kIndependent) dist = q;
    EVALRUN_CHECK(token < dist.size() && dist[token] > 0,
                  "the drafter reports no probability for the token {} it drew", token);
    const double mass = engine::sum(dist);
    if (uniform.accept(rule_.accept_scale * p_[token], dist[token] / mass)) return child;
    if (!rule_.whole_bonus) subtract(p_, 1, dist, mass, rule_.accept_scale);
    // A copy of the vocabulary's size, so only where another child will look at it.
    if (siblings_ == Siblings::kWithoutReplacement && tree.next_child(node, child) >= 0) {
      if (dist.data() != q_.data()) q_.assign(dist.begin(), dist.end());
      q_[token] = 0;
      dist = q_;
    }
  }
  return -1;
}

Verifier::Result Verifier::verify_typical(const TokenTree& tree, const TargetView& target) {
  const auto n = static_cast<size_t>(tree.size());
  constexpr double kRefused = -std::numeric_limits<double>::infinity();
  log_prob_.assign(n, kRefused);
  log_prob_[0] = 0;
  int best = 0;
  for (int node = 0; node < tree.size(); ++node) {  // parents stand before their children
    const double here = log_prob_[static_cast<size_t>(node)];
    if (here == kRefused) continue;
    const auto best_at = static_cast<size_t>(best), at = static_cast<size_t>(node);
    if (tree.level[at] > tree.level[best_at] ||
        (tree.level[at] == tree.level[best_at] && here > log_prob_[best_at]))
      best = node;
    if (tree.next_child(node, node) < 0) continue;
    engine::warp(target.logits(node), sampling_, p_, scratch_);
    double entropy = 0;
    for (const double p : p_)
      if (p > 0) entropy -= p * std::log(p + 1e-5);
    const double least = std::min(typical_->epsilon, typical_->delta * std::exp(-entropy));
    for (int child = tree.next_child(node, node); child >= 0;
         child = tree.next_child(node, child)) {
      const double p = p_[static_cast<size_t>(tree.token[static_cast<size_t>(child)])];
      if (p > least) log_prob_[static_cast<size_t>(child)] = here + std::log(p);
    }
  }
  alive_.assign(1, best);
  note_path(tree);
  return {path_, engine::argmax(target.logits(best))};
}

Verifier::Result Verifier::verify(const TokenTree& tree, const TargetView& target, QOf q_of,
                                  UniformSource& uniform, int max_accepted) {
  if (typical_ && !sampling_.greedy()) return verify_typical(tree, target);
  if (rule_.whole_paths && !sampling_.greedy() && !target.has_draws() && any_drawn(tree, q_of))
    return verify_paths(tree, target, q_of, uniform, max_accepted);
  alive_.assign(1, 0);
  for (int depth = 0;; ++depth) {
    const int node = alive_.front();  // what the target says after equal paths is equal
    int32_t token = -1;
    uniform.at(depth);
    if (sampling_.greedy()) {
      token = target.top(node);
      match(tree, token);
    } else if (target.has_draws()) {
      token = target.drawn(node);
      const int32_t child = target.tried(node);
      if (child == TargetView::kNotTried) {
        match(tree, token);
      } else {
        next_.clear();
        if (child >= 0) {
          next_.push_back(nth_child(tree, node, child));
          EVALRUN_CHECK(tree.token[static_cast<size_t>(next_[0])] == token,
                        "node {}: child {} passed with another token", node, child);
        }
      }
    } else {
      bool drawn = false;  // whether any child comes from a known distribution
      for (int child = tree.next_child(node, node); child >= 0 && !drawn;
           child = tree.next_child(node, child))
        drawn = !q_of(child).empty();
      if (drawn) {
        engine::warp(target.logits(node), sampling_, p_, scratch_);
        const int accepted = accept_child(tree, node, q_of, uniform);
        next_.clear();
        if (accepted >= 0) next_.push_back(accepted);
        token = accepted >= 0 ? tree.token[static_cast<size_t>(accepted)] : uniform.draw(p_);
      } else {
        token = uniform.draw_token(target.logits(node), sampling_, scratch_);
        match(tree, token);
      }
    }
    if (next_.empty() || depth == max_accepted) {
      note_path(tree);
      return {path_, token};
    }
    alive_.swap(next_);
  }
}

}  // namespace evalrun::methods
