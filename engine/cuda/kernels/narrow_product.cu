// Few rows, or a small matrix: a thread block is one tile and all its slices.
#include <algorithm>

#include "engine/cuda/kernels/narrow_parts.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = kProductThreads;

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
  const Slice part = slice_of(w.blocks, warp);
  typename NarrowShape<S>::Stream weights(w, tile, part.first, lane);
  fetch_first_stages<S>(weights, part, lane, ring);
  wait_for_previous();  // the weights are under way
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = e * kThreads + static_cast<int>(threadIdx.x), r = row + i / kTile;
    before[e] = i < kRows * kTile && r < n ? sum_before(out, r, tile * kTile + i % kTile) : 0.0f;
  }
  sum_fetched_slice<S, NT>(weights, part, x, w.blocks, row, n, lane, ring, acc);
  // [slice] as of store_sums(): each warp's in its ring, which all its lanes have read.
  auto* sums = reinterpret_cast<float*>(evalrun_shared_memory());
  __syncwarp();
#pragma unroll
  for (int j = 0; j < NT; ++j) store_sums(sums + warp * kSlice, acc[j], 8 * j, lane);
  __syncthreads();
  const auto total = [&](int at) { return sum_slices(sums, kSlice, at); };
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
