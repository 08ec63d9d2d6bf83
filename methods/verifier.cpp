#include "methods/verifier.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

// First child of `node` behind `after`, -1 when there is none.
int next_child(const TokenTree& tree, int node, int after) {
  for (int i = std::max(after, node) + 1; i < tree.size(); ++i)
    if (tree.parent[static_cast<size_t>(i)] == node) return i;
  return -1;
}

// target_prob <- norm(max(target_prob - draft_prob / draft_mass, 0)); draft_mass = sum of
// draft_prob. The residual has no mass only when the two laws agree up to rounding; a rejection
// then had a probability of about 1e-16 and the target's own law is as good as the residual, so it
// stays.
void subtract(std::vector<double>& target_prob, std::span<const double> draft_prob,
              double draft_mass) {
  const size_t n = std::min(target_prob.size(), draft_prob.size());
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::max(target_prob[i] - draft_prob[i] / draft_mass, 0.0);
  for (size_t i = n; i < target_prob.size(); ++i) sum += target_prob[i];
  if (!(sum > 0)) return;
  for (size_t i = 0; i < n; ++i)
    target_prob[i] = std::max(target_prob[i] - draft_prob[i] / draft_mass, 0.0) / sum;
  for (size_t i = n; i < target_prob.size(); ++i) target_prob[i] /= sum;
}

// Rejection of a point mass on `token`: what is left of the target's law without it.
void exclude(std::vector<double>& target_prob, size_t token) {
  const double cut = std::exchange(target_prob[token], 0.0);
  double sum = 0;
  for (double p : target_prob) sum += p;
  if (sum > 0) {
    for (double& p : target_prob) p /= sum;
  } else {
    target_prob[token] = cut;  // as above: only rounding can have rejected it
  }
}

}  // namespace

int Verifier::match(const TokenTree& tree, int node, int32_t token) const {
  for (int child = next_child(tree, node, node); child >= 0; child = next_child(tree, node, child))
    if (tree.token[static_cast<size_t>(child)] == token) return child;
  return -1;
}

// Rule M (S with one child): tests the children in the order they were drawn; returns the accepted
// one or -1, and leaves in p_ the law the bonus is drawn from.
int Verifier::accept_child(const TokenTree& tree, int node, QOf q_of, Chance& chance) {
  bool first = true;  // no earlier sibling came from a distribution
  for (int child = next_child(tree, node, node); child >= 0;
       child = next_child(tree, node, child)) {
    const auto token = static_cast<size_t>(tree.token[static_cast<size_t>(child)]);
    EVALRUN_CHECK(token < p_.size(), "draft token {} of {}", token, p_.size());
    const std::span<const double> q = q_of(child);
    if (q.empty()) {
      if (chance.accept(p_[token], 1.0)) return child;
      exclude(p_, token);
      continue;
    }
    if (first || siblings_ == Siblings::kIndependent) q_.assign(q.begin(), q.end());
    first = false;
    EVALRUN_CHECK(token < q_.size() && q_[token] > 0,
                  "the drafter reports no probability for the token {} it drew", token);
    double mass = 0;
    for (double v : q_) mass += v;
    if (chance.accept(p_[token], q_[token] / mass)) return child;
    subtract(p_, q_, mass);
    if (siblings_ == Siblings::kWithoutReplacement) q_[token] = 0;
  }
  return -1;
}

Verifier::Result Verifier::verify(const TokenTree& tree, LogitsOf logits_of, QOf q_of,
                                  Chance& chance) {
  path_.clear();
  int node = 0;
  while (true) {
    const std::span<const float> logits = logits_of(node);
    int next = -1;
    int32_t token = -1;
    if (sampling_.greedy()) {
      token = engine::argmax(logits);
      next = match(tree, node, token);
    } else {
      engine::warp(logits, sampling_, p_, scratch_);
      bool drawn = false;  // whether any child comes from a known distribution
      for (int child = next_child(tree, node, node); child >= 0 && !drawn;
           child = next_child(tree, node, child))
        drawn = !q_of(child).empty();
      if (drawn) {
        next = accept_child(tree, node, q_of, chance);
        if (next < 0) token = chance.draw(p_);
      } else {
        token = chance.draw(p_);
        next = match(tree, node, token);
      }
    }
    if (next < 0) return {path_, token};
    path_.push_back(next);
    node = next;
  }
}

}  // namespace evalrun::methods
