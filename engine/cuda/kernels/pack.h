// Repacking of host matrices, as they lie in raw device memory, to the layouts of
// engine/cuda/kernels/matrix_ref.h, and from there to plain rows: kernels, so that loading runs
// at the bus's speed.
#pragma once
#include "engine/cuda/kernels/weight_value.h"

namespace evalrun::engine::cuda {

constexpr int kMaxParts = 3;

// The rows of a joint matrix as rows of its parts.
struct RowMap {
  PanelRef part[kMaxParts];
  int first[kMaxParts] = {};  // first output of a part
  int n = 0;
  Joint joint = Joint::kBehind;
};

// Fills codes and scales of `to`, which have room for them.
void pack(const RowMap& map, const MatrixRef& to, size_t code_bytes, size_t scale_bytes,
          cudaStream_t stream);

// The weights as bfloat16 rows [outputs][padded inputs], rounded.
void unpack(const MatrixRef& w, uint16_t* rows, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
