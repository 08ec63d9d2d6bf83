// How a drafter chooses its drafts when sampling, and so what decides about them. Acceptance of one
// draft token, p the target's distribution and q the drafter's: docs/measurement.md, "Four rules".
#pragma once
#include "engine/base/error.h"
#include "engine/sampling.h"
#include "methods/verifier.h"

namespace evalrun::methods {

enum class DraftRule {
  kAuto,       // kGumbel where the run draws so, else kRejection
  kRejection,  // drawn from q, accepted with min(1, p/q), else a draw from what is left of p
  kPaths,      // the same, and whole paths are tested (RejectionRule::whole_paths)
  kManyPaths,  // several chains drawn alike, one of which is tested so (RejectionRule::iid_paths)
  kMatch,      // drawn from q, accepted where the target's own draw is the same token
  kArgmax,     // the likeliest of q, accepted where the target's own draw is one of them
  kGumbel,     // drawn from q by the noise that the target draws by, accepted where both are equal
};

// What lossless sampling means for a method: plain decoding's tokens for the same seed, or tokens
// of the same distribution.
enum class SampledAnswers { kSameTokens, kSameDistribution };

// What a drafter does in a run that samples like this; never kAuto, kPaths or kManyPaths.
// usage_error for kGumbel where the run does not.
inline DraftRule rule_in(DraftRule rule, const engine::SamplingParams& sampling) {
  if (sampling.greedy()) return DraftRule::kArgmax;
  const bool noise = sampling.sampler == engine::Sampler::kGumbel;
  if (rule == DraftRule::kAuto) return noise ? DraftRule::kGumbel : DraftRule::kRejection;
  if (rule == DraftRule::kGumbel && !noise)
    throw base::usage_error("verify=gumbel, but the run does not draw by noise",
                            "add --sampler gumbel (suite: \"sampler\": \"gumbel\"), then plain "
                            "decoding draws by the same noise");
  const bool paths = rule == DraftRule::kPaths || rule == DraftRule::kManyPaths;
  return paths ? DraftRule::kRejection : rule;
}
// How what a rule drew is rejected. `paths`: how many are drawn by kManyPaths.
inline RejectionRule rejection_by(DraftRule rule, int paths = 1) {
  RejectionRule rejection;
  rejection.whole_paths = rule == DraftRule::kPaths || rule == DraftRule::kManyPaths;
  if (rule == DraftRule::kManyPaths) rejection.iid_paths = paths;
  return rejection;
}
inline SampledAnswers sampled_answers(DraftRule rule, const engine::SamplingParams& sampling) {
  return rule_in(rule, sampling) == DraftRule::kRejection ? SampledAnswers::kSameDistribution
                                                          : SampledAnswers::kSameTokens;
}

}  // namespace evalrun::methods
