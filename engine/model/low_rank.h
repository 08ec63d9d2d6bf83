// Low-rank updates of a model's matrices: for flagged rows of a forward (gated adapters,
// ForwardRequest::low_rank), or merged into the weights (tuned models).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace evalrun::engine {

// y += B (scale * A x) for one weight matrix. The products are those of any matrix: A and B are
// multiplied by the kernels of their storage, B's inputs are rounded to it; the sum is added last.
struct LowRankFactor {
  float scale = 1.0f;
  WeightMatrix a;  // [rank, in]
  WeightMatrix b;  // [out, rank]
  int rank() const { return a.out(); }
  bool empty() const { return a.empty(); }
};
struct LowRankLayer {
  LowRankFactor q, k, v, o, gate, up, down;
};
struct LowRankDelta {
  std::vector<LowRankLayer> layers;  // [n_layers]
  size_t bytes() const;
  void gather();  // into one piece of memory (gather_weights)
};

// The model with W + scale * B A for every matrix, in the storage it had, so that formats of few
// bits are rounded again; K-quants become int8. `name` and `hash` are those of the new model.
// InternalError when shapes do not fit.
std::shared_ptr<const Model> merge_low_rank(const Model& model, const LowRankDelta& delta,
                                            const std::string& name, const std::string& hash,
                                            int n_threads);

}  // namespace evalrun::engine
