// The decisions of one step that tests whole paths (RejectionRule::whole_paths), made again by a
// second implementation. Source: Weng et al. 2025, arXiv 2505.12398, whose rule on a chain is block
// verification (Sun et al. 2024, arXiv 2403.10444, algorithm 2). Where methods/verifier.h
// normalises after each refusal, this one keeps what is still to be given out: `rest`, the mass of
// each token, of `reach`, all of the mass that comes here. A path that ends here passes with
// sum(rest) / reach.
//
// Of several drawn paths (RejectionRule::iid_paths) all are drawn again, and the tree must be
// theirs. The one that is taken, and its law, are found by a sort of the tokens after each node and
// by powers of the mass below; the order's classes alone are methods/greedy_paths.h's, as any order
// is lossless.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "methods/speculative_method.h"
#include "runners/verify/plain_walk.h"

namespace evalrun::runners {

// Probabilities of the engine are float64: what is compared may be off by this share of itself.
inline constexpr double kAuditRounding = 1e-10;

// Whether a draft token is the draw of `dist`, which need not be normalised; what is wrong where it
// is not, else empty. `chance` of the answer.
std::string wrong_draft(const methods::SpeculativeMethod::Verdict& verdict, int child,
                        const std::vector<double>& dist, const base::KeyedChance& chance);

struct PathAudit {
  int end = -1;              // of the path that passes, 0 = none of the draft
  std::vector<double> left;  // the next token is drawn from this, not normalised
  double slack = 0;          // of the draw: how far off the sum of `left` the engine may be
  // A top-p set is full but for rounding (PlainDistribution::border) at a node that was asked:
  // nothing else is set, and nothing was decided. Or two ratios are in one class but for rounding.
  bool border = false;
  int undecided = 0;  // tests within rounding, which were followed
  int64_t drafts = 0, tests = 0, refused = 0;
  std::string wrong;  // draft token; then nothing was decided
};

// `walk` has the text up to the root, and stays after the root's token and those of the path where
// something was decided. Nodes of levels above max_accepted() + 1 are left out.
PathAudit audit_paths(const methods::SpeculativeMethod::Verdict& verdict,
                      const engine::SamplingParams& sampling, const base::KeyedChance& chance,
                      PlainWalk& walk);

}  // namespace evalrun::runners
