// Verification of a drafted tree against the target's logits, losslessly.
// Rules by name (methods_seed_papers 0.4, methods_baselines 9): G greedy walk; X sample-then-match for
// deterministic drafts (one draw per visited node, emitted when no child matches); S/M rejection with
// residuals for drafts drawn from a known q (single and multi-candidate, without replacement).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/base/rng.h"
#include "engine/sampling.h"
#include "methods/token_tree.h"

namespace evalrun::methods {

// logits_of(node) = the target's logits after that node; asked only for visited nodes.
// q_of(node) = distribution the node was drawn from, empty span = deterministic.
using LogitsOf = std::function<std::span<const float>(int)>;
using QOf = std::function<std::span<const double>(int)>;

class Verifier {
 public:
  explicit Verifier(const engine::SamplingParams& sampling) : sampling_(sampling) {}
  struct Result {
    std::span<const int> path;  // accepted nodes in order, root excluded; valid until the next call
    int32_t bonus;              // token the target supplies behind the path
  };
  // Children with equal tokens under one parent must have been merged. Stops behind an accepted token
  // only by the loop's stop rule, not here.
  Result verify(const TokenTree& tree, const LogitsOf& logits_of, const QOf& q_of, base::Rng& rng);

 private:
  engine::SamplingParams sampling_;
  std::vector<int> path_;
  std::vector<double> p_, q_;
  engine::WarpScratch scratch_;
};

}  // namespace evalrun::methods
