// One slice of one tile for a few rows, by a warp: what narrow_product and the persistent kernel
// (all_layers.cu) add up in the same order.
#pragma once
#include "engine/cuda/kernels/product_parts.h"

namespace evalrun::engine::cuda {

// How such a sum uses shared memory: a ring of stages for every warp, who keeps to its own and so
// waits for nobody. Many stages are under way at once: a few warps must have asked for as much as
// the memory delivers while one answer comes.
template <WeightStorage S>
struct NarrowShape {
  static constexpr int kBlocks = S == WeightStorage::kBf16 ? 2 : 4;  // of a stage
  using Stream = WeightStream<S, kBlocks>;
  static constexpr int kStages = LaneWeights<S>::kOffset ? 4 : 3;
  static constexpr int kAhead = kStages * kBlocks;         // blocks under way
  static constexpr int kBytes = kStages * Stream::kBytes;  // of a warp
};

// The slice's blocks from `first` on, at most a stage of them, to `to`; nothing after its end.
// Commits a group in any case.
template <WeightStorage S>
__device__ __forceinline__ void fetch_stage(typename NarrowShape<S>::Stream& weights,
                                            const Slice& part, int first, int lane,
                                            unsigned char* to) {
  if (first < part.last) weights.fetch(min(NarrowShape<S>::kBlocks, part.last - first), lane, to);
  weights.advance();
  commit_copies();
}

// All stages of a ring, from the slice's first block on: weights alone, so that it may be done
// before the inputs are there.
template <WeightStorage S>
__device__ __forceinline__ void fetch_first_stages(typename NarrowShape<S>::Stream& weights,
                                                   const Slice& part, int lane,
                                                   unsigned char* ring) {
  using Shape = NarrowShape<S>;
#pragma unroll
  for (int s = 0; s < Shape::kStages; ++s)
    fetch_stage<S>(weights, part, part.first + s * Shape::kBlocks, lane,
                   ring + s * Shape::Stream::kBytes);
}

// Sum of a slice of a tile, of NT * 8 rows from `row` on, in the registers of a warp: acc[j] is D
// of mma_bf16 for rows row + 8 j ... Rows from n on count as zeros. The first stages are fetched,
// `weights` is after them. Rows of inputs are `stride` blocks apart.
template <WeightStorage S, int NT>
__device__ __forceinline__ void sum_fetched_slice(typename NarrowShape<S>::Stream& weights,
                                                  const Slice& part, const uint4* x, int stride,
                                                  int row, int n, int lane, unsigned char* ring,
                                                  float (&acc)[NT][4]) {
  using Shape = NarrowShape<S>;
  constexpr int kBlocks = Shape::kBlocks, kStages = Shape::kStages;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < NT; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[j][i] = 0;
  const uint4* from = x +
                      (static_cast<size_t>(row + g) * static_cast<size_t>(stride) +
                       static_cast<size_t>(part.first)) *
                          4 +
                      t;
  const size_t eight_rows = static_cast<size_t>(stride) * 32;
  unsigned char* stage = ring;
  for (int first = part.first; first < part.last; first += kBlocks, from += kBlocks * 4) {
    uint4 inputs[kBlocks][NT];
#pragma unroll
    for (int u = 0; u < kBlocks; ++u)
#pragma unroll
      for (int j = 0; j < NT; ++j)
        inputs[u][j] = first + u < part.last && row + 8 * j + g < n
                           ? from[static_cast<size_t>(j) * eight_rows + 4 * u]
                           : make_uint4(0, 0, 0, 0);
    wait_copies<kStages - 1>();
    __syncwarp();
#pragma unroll
    for (int u = 0; u < kBlocks; ++u) {
      if (first + u >= part.last) break;
      const TileFactors<S> factors(fetched_weights<S, kBlocks>(stage, u, lane, first));
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        float sums[2] = {};
        if constexpr (LaneWeights<S>::kOffset) sum_inputs(sums, inputs[u][j]);
        add_block<S>(acc[j], factors, inputs[u][j], sums);
      }
    }
    __syncwarp();  // nobody needs this stage any more
    fetch_stage<S>(weights, part, first + kStages * kBlocks, lane, stage);
    stage += Shape::Stream::kBytes;
    if (stage == ring + Shape::kBytes) stage = ring;
  }
}

// Sums of a warp in shared memory, [row][16 outputs] floats with a gap after each second row: lanes
// that hold four pairs of rows write to banks of their own, and so do those that read two rows.
constexpr int kSumStride = kTile + 4;  // of a row, on average
__device__ __forceinline__ int sum_at(int row, int o) { return row * kTile + row / 2 * 8 + o; }
__device__ __forceinline__ void store_sums(float* to, const float (&d)[4], int row, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) to[sum_at(row + 2 * t + i % 2, g + i / 2 * 8)] = d[i];
}
// Of all slices, `stride` floats apart: pairs to quarters, quarters in order.
__device__ __forceinline__ float sum_slices(const float* sums, int stride, int at) {
  const auto quarter = [&](int q) {
    return sums[2 * q * stride + at] + sums[(2 * q + 1) * stride + at];
  };
  return sum_quarters(quarter(0), quarter(1), quarter(2), quarter(3));
}

}  // namespace evalrun::engine::cuda
