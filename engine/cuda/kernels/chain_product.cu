// Products by other hands than the tensor cores': chains of float32, and what follows cuBLAS.
#include "engine/cuda/kernels/product_parts.h"

namespace evalrun::engine::cuda {
namespace {

// Sums of unpacked weights: nothing is left to be scaled.
__global__ void finish_dense(MatrixRef w, const float* sums, Epilogue out) {
  wait_for_previous();
  const int width = w.tiles * kTile;
  const int o = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  if (o >= width || (out.activated != nullptr && o % kTile >= 8)) return;
  const float* of_row = sums + static_cast<size_t>(row) * static_cast<size_t>(width);
  finish<WeightStorage::kBf16>(w, out, row, o, of_row[o],
                               out.activated != nullptr ? of_row[o + 8] : 0.0f,
                               sum_before(out, row, o));
}

// kF32: a thread is an output (in turns, both factors of one), and one chain per row.
__global__ void chain_product(MatrixRef w, const float* x, int n, Epilogue out) {
  wait_for_previous();
  const bool turns = out.activated != nullptr;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int o = turns ? i / 8 * kTile + i % 8 : i;
  if (o >= w.tiles * kTile) return;
  const auto* panel = reinterpret_cast<const float*>(w.codes) +
                      static_cast<size_t>(o / kTile) * static_cast<size_t>(w.in) * kTile +
                      o % kTile;
  const int row = static_cast<int>(blockIdx.y) * kChainRows;
  float sum[kChainRows] = {}, second[kChainRows] = {};
  for (int k = 0; k < w.in; ++k) {
    const float a = panel[static_cast<size_t>(k) * kTile];
    const float b = turns ? panel[static_cast<size_t>(k) * kTile + 8] : 0.0f;
#pragma unroll
    for (int r = 0; r < kChainRows; ++r) {
      if (row + r >= n) break;
      const float v =
          x[static_cast<size_t>(row + r) * static_cast<size_t>(w.in) + static_cast<size_t>(k)];
      sum[r] = fmaf(v, a, sum[r]);
      if (turns) second[r] = fmaf(v, b, second[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kChainRows; ++r)
    if (row + r < n)
      finish<WeightStorage::kF32>(w, out, row + r, o, sum[r], second[r],
                                  sum_before(out, row + r, o));
}

}  // namespace

void launch_chain(const ProductArguments& a, const ProductGeometry& g, cudaStream_t stream) {
  launch("chain_product", chain_product, dim3(g.grid_x, g.grid_y), kChainOutputs, 0, stream, a.w,
         static_cast<const float*>(a.x), a.rows, a.out);
}

void finish_sums(const ProductArguments& a, const float* sums, cudaStream_t stream) {
  const auto columns =
      static_cast<unsigned>((a.w.tiles * kTile + kProductThreads - 1) / kProductThreads);
  launch("finish_dense", finish_dense, dim3(columns, static_cast<unsigned>(a.rows)),
         kProductThreads, 0, stream, a.w, sums, a.out);
}

}  // namespace evalrun::engine::cuda
