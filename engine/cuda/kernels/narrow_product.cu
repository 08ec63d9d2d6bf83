// Few rows, or a small matrix: a thread block is one tile and all its slices.
#include <algorithm>

#include "engine/cuda/kernels/product_parts.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = kProductThreads;

// How narrow_product uses shared memory: a ring of stages for every warp, who keeps to its own and
// so waits for nobody. Many stages are under way at once: a few warps must have asked for as much
// as the memory delivers while one answer comes.
template <WeightStorage S>
struct NarrowShape {
  static constexpr int kBlocks = S == WeightStorage::kBf16 ? 2 : 4;  // of a stage
  using Stream = WeightStream<S, kBlocks>;
  static constexpr int kStages = LaneWeights<S>::kOffset ? 4 : 3;
  static constexpr int kBytes = kStages * Stream::kBytes;  // of a warp
};

// Sum of one slice of a tile, of NT * 8 rows from `row` on, in the registers of a warp: acc[j] is
// D of mma_bf16 for rows row + 8 j ... Rows from n on count as zeros. `ring`: kBytes of this warp.
// `meanwhile` is done when the kernel before has ended and weights are under way.
template <WeightStorage S, int NT, typename Meanwhile>
__device__ __forceinline__ void sum_slice(const MatrixRef& w, int tile, int slice, const uint4* x,
                                          int row, int n, int lane, unsigned char* ring,
                                          float (&acc)[NT][4], const Meanwhile& meanwhile) {
  using Shape = NarrowShape<S>;
  constexpr int kBlocks = Shape::kBlocks, kStages = Shape::kStages;
  const Slice part = slice_of(w.blocks, slice);
  const int g = lane / 4, t = lane % 4;
  typename Shape::Stream weights(w, tile, part.first, lane);
  const auto fetch = [&](int first, unsigned char* to) {
    if (first < part.last) weights.fetch(min(kBlocks, part.last - first), lane, to);
    weights.advance();
    commit_copies();
  };
#pragma unroll
  for (int s = 0; s < kStages; ++s)
    fetch(part.first + s * kBlocks, ring + s * Shape::Stream::kBytes);
  wait_for_previous();
  meanwhile();
#pragma unroll
  for (int j = 0; j < NT; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[j][i] = 0;
  const uint4* from = x +
                      (static_cast<size_t>(row + g) * static_cast<size_t>(w.blocks) +
                       static_cast<size_t>(part.first)) *
                          4 +
                      t;
  const size_t eight_rows = static_cast<size_t>(w.blocks) * 32;
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
    fetch(first + kStages * kBlocks, stage);
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

// Thread blocks that share a multiprocessor: as many as the registers allow without spilling, which
// is the compiler's affair.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1000)
constexpr int kBlocksOfFewBytes = 3;
#else
constexpr int kBlocksOfFewBytes = 4;
#endif
template <WeightStorage S, int NT>
constexpr int kNarrowBlocks = NT > 1                    ? 1
                              : LaneWeights<S>::kScaled ? kBlocksOfFewBytes
                                                        : 3;

// One tile and NT * 8 rows of a thread block; a warp is a slice.
template <WeightStorage S, int NT>
__global__ void __launch_bounds__(kThreads, (kNarrowBlocks<S, NT>))
    narrow_product(MatrixRef w, const uint4* x, int n, Epilogue out) {
  constexpr int kRows = NT * 8, kSlice = NarrowShape<S>::kBytes / 4;
  static_assert(kRows * kSumStride <= kSlice);
  const int tile = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y) * kRows;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % 32;
  unsigned char* ring = evalrun_shared_memory() + warp * NarrowShape<S>::kBytes;
  constexpr int kEach = (kRows * kTile + kThreads - 1) / kThreads;  // outputs of a thread
  float acc[NT][4], before[kEach];
  sum_slice<S, NT>(w, tile, warp, x, row, n, lane, ring, acc, [&] {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = e * kThreads + static_cast<int>(threadIdx.x), r = row + i / kTile;
      before[e] = i < kRows * kTile && r < n ? sum_before(out, r, tile * kTile + i % kTile) : 0.0f;
    }
  });
  // [slice] as of store_sums(): each warp's in its ring, which all its lanes have read.
  auto* sums = reinterpret_cast<float*>(evalrun_shared_memory());
  __syncwarp();
#pragma unroll
  for (int j = 0; j < NT; ++j) store_sums(sums + warp * kSlice, acc[j], 8 * j, lane);
  __syncthreads();
  const auto total = [&](int at) {
    const auto quarter = [&](int q) {
      return sums[2 * q * kSlice + at] + sums[(2 * q + 1) * kSlice + at];
    };
    return sum_quarters(quarter(0), quarter(1), quarter(2), quarter(3));
  };
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = e * kThreads + static_cast<int>(threadIdx.x), r = i / kTile, o = i % kTile;
    if (i >= kRows * kTile || row + r >= n) break;
    if (out.activated != nullptr && o >= 8) continue;
    finish<S>(w, out, row + r, tile * kTile + o, total(sum_at(r, o)),
              out.activated != nullptr ? total(sum_at(r, o + 8)) : 0.0f, before[e]);
  }
}

template <WeightStorage S>
constexpr int kNarrowBytes = kProductWarps* NarrowShape<S>::kBytes;

}  // namespace

BlockShape narrow_block(WeightStorage storage, int rows) {
  return of_storage(storage, [&](auto s) -> BlockShape {
    return {rows <= 8 ? 8 : rows <= 16 ? 16 : 32, kNarrowBytes<decltype(s)::value>};
  });
}

void allow_narrow_products() {
  for (const WeightStorage storage : kPackedStorages)
    of_storage(storage, [](auto s) {
      constexpr WeightStorage S = decltype(s)::value;
      allow_bytes(narrow_product<S, 1>, kNarrowBytes<S>);
      allow_bytes(narrow_product<S, 2>, kNarrowBytes<S>);
      allow_bytes(narrow_product<S, 4>, kNarrowBytes<S>);
    });
}

void launch_narrow(const ProductArguments& a, const ProductGeometry& g, cudaStream_t stream) {
  of_storage(a.w.storage, [&](auto s) {
    constexpr WeightStorage S = decltype(s)::value;
    const auto kernel = g.tile_rows == 8    ? narrow_product<S, 1>
                        : g.tile_rows == 16 ? narrow_product<S, 2>
                                            : narrow_product<S, 4>;
    launch("narrow_product", kernel, dim3(g.grid_x, g.grid_y, g.grid_z), kThreads, g.shared_bytes,
           stream, a.w, static_cast<const uint4*>(a.x), a.rows, a.out);
  });
}

}  // namespace evalrun::engine::cuda
