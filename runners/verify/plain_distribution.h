// The distribution that plain decoding draws from, and a draw from it, computed a second time: from
// libm's exp and by sorting. No code is shared with engine/sampling.cpp, so that certificates
// (plain_law.h, decision_audit.h) do not ask a program about itself. Source: the order of warpers
// in Hugging Face transformers (temperature, top-k, top-p).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling.h"

namespace evalrun::runners {

struct PlainDistribution {
  std::vector<double> prob;  // [token], sums to 1
  // The set that reaches top_p may be one token larger or smaller: what was reached is as near to
  // top_p as the engine's masses are rounded (engine/sampling_arith.h).
  bool border = false;
};

// After temperature, top-k, top-p, with the ties of engine::warp(). A set that reaches top_p but
// for 1e-12 of it reaches it. temperature > 0.
PlainDistribution plain_distribution(std::span<const float> logits,
                                     const engine::SamplingParams& sampling);

// What one number decides. `near`: also a token that rounding could have given; -1 = none.
struct PlainDraw {
  int32_t token = -1;
  int32_t near = -1;
  bool is(int32_t other) const { return other >= 0 && (other == token || other == near); }
};
// The first token at which the probabilities, added by id, exceed `uniform` times their sum.
// `slack`: how far off that sum the engine may be.
PlainDraw draw_by_inverse(std::span<const double> prob, double uniform, double slack);
// The token that arrives first in the whole race (engine/gumbel.cpp), whose noise is the engine's.
PlainDraw draw_by_race(std::span<const double> prob, double uniform);

// By how much the engine's integer masses of so many tokens can shift the place of a draw.
double mass_slack(size_t tokens);

}  // namespace evalrun::runners
