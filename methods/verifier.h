// Verification of a drafted tree against the target's verdicts, losslessly.
// The rules:
// - greedy walk: follow the target's likeliest tokens;
// - sample and match, for deterministic drafts: one draw from the target per visited node, emitted
//   when no child matches;
// - rejection sampling, for a draft drawn from a known distribution: accept with probability
//   min(1, p/q), else draw from the residual (Leviathan et al. 2023, arXiv 2211.17192, algorithm
//   1);
// - multi-candidate rejection: the same for several children, with or without replacement
//   (SpecInfer, Miao et al. 2024, arXiv 2305.09781, section 4.3);
// - whole paths (RejectionRule::whole_paths), for drawn drafts: block verification of a chain (Sun
//   et al. 2024, arXiv 2403.10444, algorithm 2), traversal verification of a tree (Weng et al.
//   2025, arXiv 2505.12398), which is the former where the tree is a chain. Below;
// - several paths (RejectionRule::iid_paths), for chains drawn independently: the greatest of them
//   in an order, then block verification of it. Below.
//
// Greedy sampling walks, whatever the draft. Otherwise each visited node decides: sample and match
// when none of its children has a distribution, rejection when they have. A child without one
// beside children that have one counts as drawn from a point mass. Sample and match gives plain
// decoding's tokens; rejection its distribution. Drafters whose rule is match or gumbel report no
// distribution for what they drew.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/function_ref.h"
#include "engine/base/rng.h"
#include "engine/sampling.h"
#include "engine/session.h"
#include "methods/greedy_paths.h"
#include "methods/token_tree.h"

namespace evalrun::methods {

// Whole paths. p(x | n) is the target's distribution after node n, q(x | n) the drafter's. A node n
// is reached with a share a(n), the probability with which a path through n or to n must be
// accepted, given that n was drafted. a(root) = 1. At a node, with w(x) = a p(x):
//   1. Child c with token x, drawn from q, is reached with a(c) = min(1, w(x) / q(x)). Visit c.
//   2. If no path through c was accepted, which has the probability 1 - sum min(w, q), then
//        R = sum max(w - q, 0),  p <- max(w - q, 0) / R,  a <- R / (R + 1 - a),
//      and q loses x and is normalised (Siblings::kWithoutReplacement), or stays (kIndependent). Go
//      on with the next child. A child without a distribution has q = 1 at x.
//   3. Without children left, the path that ends here is accepted with probability a: then the next
//      token is drawn from p. The root's a is 1 throughout, so something is always accepted.
// Why this is lossless: by induction from the leaves, c's visit accepts with probability a(c), and
// what follows is the target's. So x is emitted by way of c with q(x) a(c) = min(w(x), q(x)), and
// what w(x) lacks comes with p and a of step 2, as R + 1 - a is the probability of the refusal. The
// argument holds for each value of the first child, so the later ones may depend on it; and a draft
// may stop after a token because of its value, as every node it leaves has drawn nothing yet.
// In the papers' terms, for a chain x_1 .. x_k: p_0 = 1, p_i = min(1, p_{i-1} p(x_i) / q(x_i)) is
// a(x_i); after the refusal of all longer prefixes x_1 .. x_i is accepted with
//   h_i = R_i / (R_i + 1 - p_i),  R_i = sum_x max(p_i p(x) - q(x), 0);  h_k = p_k,
// and the next token has max(p_i p(x) - q(x), 0) / R_i: not the residual max(p - q, 0) of a token.
// The expected number of accepted tokens is at least that of rejection token by token, on a chain
// the most that any lossless rule of p and q has (theorem 2 there).
//
// Several paths. K chains are drawn from q independently; those that begin alike share nodes, and
// every chain ends where what it has drawn says so (at a length, or in doubt), not because of the
// others. One of them is taken: the greatest in an order of all paths that p and q before each
// token fix. It is one draw from a chain q' that is known (methods/greedy_paths.h). So whole paths
// are tested as above, of this chain alone, with q' for q. Lossless by the same argument. With K =
// 1 this is block verification. Nodes that the taken path leaves out are refused untested. The idea
// is greedy multi-path block verification (Thomas and Pal 2026, arXiv 2602.16961): a path is taken
// of several drawn alike, and block-verified by the law that taking gives it. We had the paper's
// abstract and not its algorithm: order and equations here are our own derivation. They need not
// accept as much as the paper's, and nothing says that more paths accept more tokens in every case.

// The target's logits after a node, or the index of the largest of them, or a draw from its
// distribution.
using LogitsOf = base::FunctionRef<std::span<const float>(int node)>;
using TokenOf = base::FunctionRef<int32_t(int node)>;

// What the target says after each node; asked only for visited nodes. The greedy walk and
// sample and match need one token a node, and so does rejection where the children were tried with
// the forward; all others need logits: a forward that computed tokens alone spares the logits of a
// whole vocabulary per row. Borrows what it is made from.
class TargetView {
 public:
  static TargetView with_logits(LogitsOf logits) { return {logits, std::nullopt, std::nullopt}; }
  static TargetView with_top(TokenOf top) { return {std::nullopt, top, std::nullopt}; }
  // Drawn with the numbers that the UniformSource has for the nodes' levels.
  // `tried`: of nodes whose children were drawn from distributions kept on the device, the child
  // that passed there (among its siblings, from 0), then drawn() is its token, or kNonePassed; else
  // kNotTried.
  static TargetView with_draws(TokenOf top, TokenOf drawn, TokenOf tried) {
    return {std::nullopt, top, drawn, tried};
  }
  static constexpr int32_t kNonePassed = -1, kNotTried = -2;
  // Ties: the smallest index. Found in the logits when those are what there is.
  int32_t top(int node) const;
  bool has_draws() const { return drawn_.has_value(); }
  int32_t drawn(int node) const;
  int32_t tried(int node) const { return (*tried_)(node); }
  // InternalError when the target was asked for tokens only.
  std::span<const float> logits(int node) const;

 private:
  TargetView(std::optional<LogitsOf> logits, std::optional<TokenOf> top,
             std::optional<TokenOf> drawn, std::optional<TokenOf> tried = {})
      : logits_(logits), top_(top), drawn_(drawn), tried_(tried) {}
  std::optional<LogitsOf> logits_;
  std::optional<TokenOf> top_, drawn_, tried_;
};
// q_of(node) = the distribution the node's parent drew its *first* child from, the same for all
// siblings; empty = the node was chosen deterministically. May be shorter than the vocabulary (a
// draft model with fewer ids): what is missing has no mass.
using QOf = base::FunctionRef<std::span<const double>(int node)>;

// How the children of one node were drawn, in node order.
enum class Siblings {
  kWithoutReplacement,  // each from q without the earlier ones, renormalised
  kIndependent,         // each from q itself; equal siblings must stay in the tree
};

// Uniform numbers that the rules ask for. Separate from where they come from, so that tests can
// walk through all answers and add up exact probabilities.
class UniformSource {
 public:
  virtual ~UniformSource() = default;
  // What is asked next is for the token after a node of this level, 0 = the root.
  virtual void at(int /*level*/) {}
  // What is asked next is whether the path that ends in this node, not the root, is accepted.
  virtual void at_path(int /*node*/) {}
  // True with probability min(1, target_prob / draft_prob); draft_prob > 0.
  virtual bool accept(double target_prob, double draft_prob) = 0;
  virtual int32_t draw(std::span<const double> prob) = 0;
  // From the distribution of these logits.
  virtual int32_t draw_token(std::span<const float> logits, const engine::SamplingParams& sampling,
                             engine::WarpScratch& scratch);
};

// Numbers keyed by the position that they decide. A position is decided once: by the draw of plain
// decoding, whatever was drafted, or by tests of drawn drafts and a draw from what they leave. So
// methods that sample and match give plain decoding's tokens.
//
// Tests of whole paths say something of positions that the step does not decide. So they are keyed
// by the step's first position, which no other step has, and by the node: the path that ends in
// node i by accept(first, i - 1). The draw after it is keyed by its own position, as all are.
class KeyedUniforms final : public UniformSource {
 public:
  explicit KeyedUniforms(const base::KeyedChance& chance) : chance_(chance) {}
  // Before each step: the position of the token after the root.
  void begin_step(int64_t position) { first_ = position_ = position, trial_ = 0; }
  // By what draw_token() will draw after nodes of this level.
  double target(int level) const { return chance_.target(first_ + level); }
  void at(int level) override { position_ = first_ + level, trial_ = 0; }
  void at_path(int node) override { position_ = first_, trial_ = node - 1; }
  int32_t draw_token(std::span<const float> logits, const engine::SamplingParams& sampling,
                     engine::WarpScratch& scratch) override {
    return engine::draw(logits, sampling, chance_.target(position_), scratch);
  }
  bool accept(double target_prob, double draft_prob) override {
    return chance_.accept(position_, trial_++) * draft_prob < target_prob;
  }
  int32_t draw(std::span<const double> prob) override {
    return engine::draw(prob, chance_.target(position_));
  }

 private:
  base::KeyedChance chance_;
  int64_t first_ = 0, position_ = 0;
  int trial_ = 0;
};

// Medusa's typical acceptance: under sampling a draft token x passes where the target gives it
// p(x) > min(epsilon, delta exp(-H(p))); of all accepted paths the longest is kept, the likelier of
// equally long ones, and the target's likeliest token follows. Changes the distribution of the
// output: lossy.
struct TypicalAcceptance {
  double epsilon = 0.09, delta = 0.3;
};

// How a drawn draft token x with draft probability p and target probability q is taken.
struct RejectionRule {
  // Accepted with probability min(1, accept_scale q / p); what is left of the target's distribution
  // follows, so that up to 1 this is lossless, only slower. Above 1 it is lossy.
  double accept_scale = 1;
  // On rejection the bonus is drawn from the target's whole distribution, as SPACE is published and
  // released. Lossy: drafts likelier than the target has them come out too often.
  bool whole_bonus = false;
  // Whole paths are tested instead of one token after the other, where anything was drawn. Above,
  // with min(q, accept_scale w) for what is accepted.
  bool whole_paths = false;
  // With whole_paths: the tree is so many chains drawn independently, where anything was drawn.
  // Above. 0 = it is not.
  int iid_paths = 0;
};

class Verifier {
 public:
  explicit Verifier(const engine::SamplingParams& sampling,
                    Siblings siblings = Siblings::kWithoutReplacement,
                    std::optional<TypicalAcceptance> typical = {}, RejectionRule rule = {})
      : sampling_(sampling),
        siblings_(siblings),
        typical_(typical),
        rule_(rule),
        greedy_paths_(rule.iid_paths) {}
  struct Result {
    std::span<const int> path;  // accepted nodes in order, root excluded; valid until the next call
    int32_t bonus;              // token the target supplies after the path
  };
  // Without rejection, equal siblings stay in the race together. So drafts that share a prefix give
  // the same tokens whether they are merged or not; merging them saves rows. The path is the first
  // of the longest.
  // The tree must have been fixed before any of the randomness used here. Stopping after an
  // accepted token is up to the loop's stop rule and does not happen here.
  // `target` must offer logits unless sampling is greedy, or it has drawn and tried. A token
  // accepted after `max_accepted` others becomes the bonus and ends the walk. This is as lossless,
  // and one token shorter.
  Result verify(const TokenTree& tree, const TargetView& target, QOf q_of, UniformSource& uniform,
                int max_accepted = engine::kMaxRows);
  // From the next verify() on.
  void sample_as(const engine::SamplingParams& sampling) { sampling_ = sampling; }
  // Avoids growth during steps: room for `depth` accepted nodes.
  void reserve(int depth) {
    path_.reserve(static_cast<size_t>(depth));
    alive_.reserve(static_cast<size_t>(depth));
    next_.reserve(static_cast<size_t>(depth));
    sibling_tokens_.reserve(static_cast<size_t>(depth));
  }

 private:
  struct PathWalk;
  struct PathLevel {        // of the node of this level that is being visited
    std::vector<double> p;  // the target's distribution; what is left of it after refusals
    std::vector<double> q;  // the drafter's without the siblings drawn before, not normalised
    bool drawn = false;     // q is set
  };
  Result verify_paths(const TokenTree& tree, const TargetView& target, QOf q_of,
                      UniformSource& uniform, int max_accepted);
  bool accept_path(PathWalk& walk, int node, double share);
  bool accept_below(PathWalk& walk, int child, PathLevel& here, double& share);
  int next_of_taken(const PathWalk& walk, int node, PathLevel& here);
  Result verify_typical(const TokenTree& tree, const TargetView& target);
  void match(const TokenTree& tree, int32_t token);
  void note_path(const TokenTree& tree);
  int accept_child(const TokenTree& tree, int node, QOf q_of, UniformSource& uniform);

  engine::SamplingParams sampling_;
  Siblings siblings_;
  std::optional<TypicalAcceptance> typical_;
  RejectionRule rule_;
  std::vector<PathLevel> levels_;
  GreedyPaths greedy_paths_;
  std::vector<int32_t> sibling_tokens_;  // of one node's children
  std::vector<double> log_prob_;  // typical: of the path to each node, -inf where it is refused
  std::vector<int> path_;
  std::vector<int> alive_, next_;  // nodes whose root paths hold the tokens so far; ascending
  std::vector<double>
      p_;  // the target's distribution at the visited node; the residual after rejections
  std::vector<double> q_;  // q without the siblings drawn before, not normalised
  engine::WarpScratch scratch_;
};

}  // namespace evalrun::methods
