// All layers of a decoding step in one launch, for small models: what a step of theirs costs
// otherwise is what some nine launches a layer take to begin and to end. Thread blocks stay where
// they are from the first layer to the last and meet at a barrier after each phase:
//
//   norm, q k v, rotation | chunks of keys | chunks to rows | o | norm, gate and up | down
//
// Each phase does what a kernel of its own does elsewhere, by the same functions and in the same
// order of sums (narrow_parts.h, row_parts.h, chunk_parts.h, merge_parts.h): the bits are the
// same. Norms are computed by every thread block that multiplies their results. The weights that a
// block multiplies first in the next product are on their way to its shared memory while it waits,
// those of its second tile to the L2.
#pragma once
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/matrix_ref.h"
#include "engine/cuda/kernels/row_ops.h"

namespace evalrun::engine::cuda {

// One layer, in device memory. As DeviceLayer has it; biases may be nullptr.
struct alignas(16) LayerRef {
  MatrixRef qkv, o, gate_up, down;  // of one storage
  const float *attn_norm = nullptr, *ffn_norm = nullptr;
  const float *qkv_bias = nullptr, *o_bias = nullptr, *gate_up_bias = nullptr, *down_bias = nullptr;
};

// How outputs of the product with q, k and v are cut so that a thread block has both halves of what
// it rotates. An item is `tiles` tiles, `apart` from one another: one tile of each half of a head,
// `per_head` items a head; or, where a half is no whole tiles, the fewest tiles that are whole
// heads (per_head 0).
struct HeadItems {
  int tiles = 0, apart = 0, per_head = 0;
  int q = 0, kv = 0;  // items of queries; of keys, and as many of values
};
// tiles 0: such heads take other kernels.
HeadItems head_items(int head_dim, int heads, int kv_heads);

struct LayersJob {
  const LayerRef* layers = nullptr;  // [n_layers]
  int n_layers = 0;
  WeightStorage storage = WeightStorage::kBf16;
  int n = 0;           // rows
  float* x = nullptr;  // [n][d] the residual stream, before and after
  int d = 0, d_ffn = 0;
  float eps = 0;
  const StepHeader* header = nullptr;
  const float *cos = nullptr, *sin = nullptr;  // [positions][head_dim / 2]
  HeadItems heads;
  // Of layer 0, a step with items; q is written as well. Bytes from one layer's keys to the next's,
  // and the same of values.
  AttentionArguments attention;
  size_t cache_layer = 0, rows_layer = 0;
  InputRows activated;        // inputs of `down`
  unsigned* count = nullptr;  // GridBarrier's
  int multiprocessors = 0;    // of the device
};

constexpr int kMostLayerRows = 16;                       // of a step
constexpr int kMostLayerWidth = 1024;                    // d
constexpr int kMostLayerHead = 64;                       // head_stride
constexpr int kMostItemTiles = 3;                        // HeadItems::tiles
constexpr int64_t kMostLayerWeights = int64_t{1} << 21;  // of one matrix

// Whether layers of these matrices can go this way at all (one storage that has a kernel, no matrix
// too large), on a device that has room for one thread block. Not for K-quants and float32.
bool takes_matrices(const LayerRef& layer);
// Once per device, the current one. Its multiprocessors.
int prepare_all_layers();
// A cooperative launch of as many thread blocks as have work in some phase and fit the device.
void run_all_layers(const LayersJob& job, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
