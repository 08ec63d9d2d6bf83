// Trained weights of methods whose drafts come from mask rows inside the target's own forward:
// SPACE, BiTA, PaSS, gated low-rank adapters. Tensors: docs/adapters.md.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/session.h"
#include "methods/heads/adapter.h"
#include "methods/method.h"

namespace evalrun::methods {

inline constexpr int kMostMasks = 64;  // of a group

struct MaskWeights {
  int masks = 0;                  // of a group, at most (M, k)
  bool distinct = true;           // an embedding per mask; else one for all of them
  std::vector<float> embedding;   // [distinct ? masks : 1, d_model]
  engine::PrefixBank prefix;      // length 0 = none
  engine::LowRankDelta low_rank;  // no layers = none
  std::vector<int32_t> ids;       // tokens that are drafted, ascending; empty = all
  std::shared_ptr<const engine::WeightMatrix> head;  // [drafted ids, d_model]
  bool own_head = false;  // the adapter's; else the target's, or what of it is drafted
  size_t bytes = 0;       // beside the target's own weights

  // Of a step that reads masks, in plain steps of `target`: nothing on a GPU, which has the
  // products of all rows anyway, so that masks want nothing smaller than the target's head (`bytes`
  // are then without one); drawn drafts (`draws`) have distributions of their own.
  double head_cost(const engine::Model& target, const std::string& device, bool draws);
  engine::MatrixView embeddings(int d_model) const {
    return {embedding.data(), static_cast<int>(embedding.size()) / d_model, d_model};
  }
};

// Everything of an adapter. Gated adapters and SPACE have low-rank updates. In SPACE they are part
// of the tuned model (methods/masks/tuned_target.h) and not applied to single rows.
MaskWeights read_mask_weights(AdapterReader& reader, const engine::Model& target,
                              engine::WeightStorage head_storage);
// The updates alone, A in this storage (B is float32: its rank is too short for blocks of 64
// inputs); no layers when the adapter has none.
engine::LowRankDelta read_low_rank(AdapterReader& reader, const engine::ModelConfig& config,
                                   engine::WeightStorage storage);

}  // namespace evalrun::methods
