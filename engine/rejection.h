// Rejection in integers, as devices do it where the logits are: which of a node's drawn children
// the target takes, or the token that comes in their place (rejection sampling, methods/verifier.h;
// Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; several children: Miao et al. 2024, arXiv
// 2305.09781, section 4.3). Masses and their sums are integers (engine/sampling_arith.h) and every
// node uses one uniform, so that a device comes to the very same verdict however it divides the
// work; this is the definition it is held to. The distribution of what follows is the target's
// within 2 V 2^-44 in total variation (1e-8 at 128k tokens).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/distributions.h"

namespace evalrun::engine {

// A distribution over token ids in integers; what is missing at the end has no mass.
struct MassDistribution {
  std::span<const uint64_t> mass;
  uint64_t total = 0;  // their sum, > 0
};

// Tokens drawn one after the other, none twice, one by each uniform; -1 where nothing is left.
void draw_without_replacement(const MassDistribution& dist, std::span<const double> uniforms,
                              std::vector<int32_t>& tokens);

// Distributions in the host's memory.
class HostDistributions final : public DistributionStore {
 public:
  HostDistributions(int slots, int vocab, std::span<const int32_t> ids);
  // The masses of a drafter's outputs, `total` together.
  void keep(int slot, std::span<const uint64_t> mass, uint64_t total);
  MassDistribution dist(int slot) const;

 private:
  std::vector<int32_t> ids_;
  std::vector<uint64_t> mass_, total_;  // [slots][vocab], [slots]
};

struct RejectionOutcome {
  int passed;     // of the children, counted from 0; -1 = none
  int32_t token;  // the child's, or else the target's own
};
// `children` were drawn from `draft`: in this order without replacement, or independently.
// `uniform` in [0, 1). Changes `target`, whose masses are `total` together, to what is left of it.
RejectionOutcome try_children(std::vector<uint64_t>& target, uint64_t total,
                              const MassDistribution& draft, std::span<const int32_t> children,
                              bool independent, double uniform);

}  // namespace evalrun::engine
