#include <algorithm>

#include "engine/cuda/check.h"
#include "engine/cuda/device_code.h"
#include "engine/cuda/products.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kAhead = 4;  // blocks whose weights are under way before the first is used
constexpr int kNarrowRows =
    16;                        // up to so many rows, all slices of a tile meet in one thread block
constexpr int kWideTiles = 4;  // tiles of a thread block for more rows
constexpr int kWideRows = 64;  // and its rows
constexpr int kWideBatch = 256;
constexpr int kChainRows = 4;  // rows of a thread in kF32
constexpr int kChainOutputs = 128;

static_assert(kSlices == kWarps && kWideTiles * 2 == kWarps);

// A lane's weights of one tile and block: outputs g and g + 8, inputs 8 t .. 8 t + 7.
template <WeightStorage S>
struct LaneWeights {
  uint4 codes, more;  // kBf16: of g, of g + 8; else codes, nothing
  uint2 scales;       // d, d' (, m, m')
};

template <WeightStorage S>
__device__ __forceinline__ LaneWeights<S> load_weights(const MatrixRef& w, int tile, int block,
                                                       int lane) {
  LaneWeights<S> r = {};
  const int g = lane / 4, t = lane % 4;
  const size_t at =
      static_cast<size_t>(tile) * static_cast<size_t>(w.blocks) + static_cast<size_t>(block);
  if constexpr (S == WeightStorage::kBf16) {
    const size_t row_words = static_cast<size_t>(w.blocks) * 4;  // of 16 bytes
    const uint4* p = reinterpret_cast<const uint4*>(w.codes) +
                     static_cast<size_t>(tile * kTile + g) * row_words +
                     static_cast<size_t>(block) * 4 + t;
    r.codes = load_once(p);
    r.more = load_once(p + 8 * row_words);
  } else if constexpr (S == WeightStorage::kQ4Group) {
    const uint2 codes = load_once(reinterpret_cast<const uint2*>(w.codes) + at * kWarp + lane);
    r.codes.x = codes.x, r.codes.y = codes.y;
    r.scales = load_once(reinterpret_cast<const uint2*>(w.scales) + at * 8 + g);
  } else {
    r.codes = load_once(reinterpret_cast<const uint4*>(w.codes) + at * kWarp + lane);
    if constexpr (S == WeightStorage::kInt8Group)
      r.scales.x = reinterpret_cast<const uint32_t*>(w.scales)[at * 8 + g];
  }
  return r;
}

// Pair i (inputs 8 t + 2 i and one more) of output g or g + 8.
template <WeightStorage S>
__device__ __forceinline__ uint32_t weight_pair(const LaneWeights<S>& r, int second, int i) {
  if constexpr (S == WeightStorage::kBf16) {
    const uint4& v = second ? r.more : r.codes;
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  } else if constexpr (S == WeightStorage::kQ4Group) {
    return q4_pair(second ? r.codes.y : r.codes.x, i);
  } else {
    const uint32_t low = second ? r.codes.z : r.codes.x, high = second ? r.codes.w : r.codes.y;
    return int8_pair(i < 2 ? low : high, i % 2);
  }
}

// Sum of one slice of a tile, of NT * 8 rows from `row` on, in the registers of a warp: acc[j] is
// D of mma_bf16 for rows row + 8 j ... Rows from n on count as zeros.
template <WeightStorage S, int NT>
__device__ __forceinline__ void sum_slice(const MatrixRef& w, int tile, int slice,
                                          const uint4* __restrict__ x, int row, int n, int lane,
                                          float (&acc)[NT][4]) {
  constexpr bool kScaled = S == WeightStorage::kInt8Group || S == WeightStorage::kQ4Group;
  const Slice part = slice_of(w.blocks, slice);
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < NT; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[j][i] = 0;
  const auto load_inputs = [&](int block, int j) {
    const int r = row + 8 * j + g;
    if (r >= n) return make_uint4(0, 0, 0, 0);
    return x[static_cast<size_t>(r) * static_cast<size_t>(w.blocks) * 4 +
             static_cast<size_t>(block) * 4 + static_cast<size_t>(t)];
  };
  constexpr bool kInputsAhead = NT <= 2;  // more do not fit into registers
  for (int first = part.first; first < part.last; first += kAhead) {
    LaneWeights<S> ahead[kAhead];
    uint4 inputs_ahead[kAhead][kInputsAhead ? NT : 1];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (first + u >= part.last) break;
      ahead[u] = load_weights<S>(w, tile, first + u, lane);
      if constexpr (kInputsAhead)
#pragma unroll
        for (int j = 0; j < NT; ++j) inputs_ahead[u][j] = load_inputs(first + u, j);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (first + u >= part.last) break;
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i / 2][i % 2 * 2] = weight_pair<S>(ahead[u], 0, i);
        a[i / 2][i % 2 * 2 + 1] = weight_pair<S>(ahead[u], 1, i);
      }
      float d[2] = {}, m[2] = {};
      if constexpr (kScaled) {
        d[0] = half_bits_to_float(static_cast<uint16_t>(ahead[u].scales.x));
        d[1] = half_bits_to_float(static_cast<uint16_t>(ahead[u].scales.x >> 16));
      }
      if constexpr (S == WeightStorage::kQ4Group) {
        m[0] = half_bits_to_float(static_cast<uint16_t>(ahead[u].scales.y));
        m[1] = half_bits_to_float(static_cast<uint16_t>(ahead[u].scales.y >> 16));
      }
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        uint4 b;
        if constexpr (kInputsAhead)
          b = inputs_ahead[u][j];
        else
          b = load_inputs(first + u, j);
        if constexpr (!kScaled) {
          mma_bf16(acc[j], a[0], b.x, b.y);
          mma_bf16(acc[j], a[1], b.z, b.w);
        } else {
          float sum[4] = {};
          mma_bf16(sum, a[0], b.x, b.y);
          mma_bf16(sum, a[1], b.z, b.w);
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[j][i] = fmaf(d[i / 2], sum[i], acc[j][i]);
          if constexpr (S == WeightStorage::kQ4Group) {
            // The offset counts once for every input: the sum of the inputs, in the same shape.
            const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
            float inputs[4] = {};
            mma_bf16(inputs, ones, b.x, b.y);
            mma_bf16(inputs, ones, b.z, b.w);
#pragma unroll
            for (int i = 0; i < 4; ++i) acc[j][i] = fmaf(m[i / 2], inputs[i], acc[j][i]);
          }
        }
      }
    }
  }
}

__device__ __forceinline__ float sum_quarters(float q0, float q1, float q2, float q3) {
  return ((q0 + q1) + q2) + q3;
}

// Output o (of the device matrix) of one row, from its sum and, in turns, that of o + 8.
template <WeightStorage S>
__device__ __forceinline__ void finish(const MatrixRef& w, const Epilogue& out, int row, int o,
                                       float sum, float second) {
  if constexpr (S == WeightStorage::kInt8Channel) {
    const auto* scale = reinterpret_cast<const float*>(w.scales);
    sum = sum * scale[o];
    if (out.activated != nullptr) second = second * scale[o + 8];
  }
  if (out.bias != nullptr) {
    sum = sum + out.bias[o];
    if (out.activated != nullptr) second = second + out.bias[o + 8];
  }
  if (out.activated != nullptr) {
    const int to = o / kTile * 8 + o % 8;
    if (to >= out.outputs) return;
    const size_t at =
        static_cast<size_t>(row) * static_cast<size_t>(out.ldy) + static_cast<size_t>(to);
    const float h = cpu::silu_mul(sum, second);
    if constexpr (S == WeightStorage::kF32)
      static_cast<float*>(out.activated)[at] = h;
    else
      static_cast<uint16_t*>(out.activated)[at] = float_to_bf16(h);
    return;
  }
  if (o >= out.outputs) return;
  const size_t at =
      static_cast<size_t>(row) * static_cast<size_t>(out.ldy) + static_cast<size_t>(o);
  if (out.residual != nullptr)
    out.residual[at] = out.residual[at] + sum;
  else
    out.y[at] = sum;
}

// D of a warp into [row][16 outputs] floats.
__device__ __forceinline__ void store_sums(float* to, const float (&d)[4], int row, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) to[(row + 2 * t + i % 2) * kTile + g + i / 2 * 8] = d[i];
}

// One tile and NT * 8 rows of a thread block; a warp is a slice.
template <WeightStorage S, int NT>
__global__ void __launch_bounds__(kThreads)
    narrow_product(MatrixRef w, const uint4* __restrict__ x, int n, Epilogue out) {
  auto* sums = reinterpret_cast<float*>(evalrun_shared_memory());  // [slice][row][16]
  constexpr int kRows = NT * 8;
  const int tile = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y) * kRows;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % 32;
  float acc[NT][4];
  sum_slice<S, NT>(w, tile, warp, x, row, n, lane, acc);
#pragma unroll
  for (int j = 0; j < NT; ++j) store_sums(sums + warp * kRows * kTile, acc[j], 8 * j, lane);
  __syncthreads();
  const auto total = [&](int at) {
    const auto quarter = [&](int q) {
      return sums[2 * q * kRows * kTile + at] + sums[(2 * q + 1) * kRows * kTile + at];
    };
    return sum_quarters(quarter(0), quarter(1), quarter(2), quarter(3));
  };
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kTile; i += kThreads) {
    const int r = i / kTile, o = i % kTile;
    if (row + r >= n) break;
    if (out.activated != nullptr && o >= 8) continue;
    finish<S>(w, out, row + r, tile * kTile + o, total(i),
              out.activated != nullptr ? total(i + 8) : 0.0f);
  }
}

// Four tiles, 64 rows and one quarter of a thread block: warps 0 to 3 the first slice, 4 to 7 the
// second. Quarters go to `quarters` [quarter][n][outputs].
template <WeightStorage S>
__global__ void __launch_bounds__(kThreads, 1)  // one: its registers are worth more than another
    wide_product(MatrixRef w, const uint4* __restrict__ x, int n, float* quarters) {
  constexpr int kTiles8 = kWideRows / 8;
  auto* sums = reinterpret_cast<float*>(evalrun_shared_memory());  // [tile][row][16], of slice two
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % 32;
  const int slot = warp % kWideTiles, half = warp / kWideTiles;
  const int tile = static_cast<int>(blockIdx.x) * kWideTiles + slot;
  const int row = static_cast<int>(blockIdx.y) * kWideRows, quarter = static_cast<int>(blockIdx.z);
  float acc[kTiles8][4];
  const bool inside = tile < w.tiles;  // of a whole warp
  if (inside) sum_slice<S, kTiles8>(w, tile, 2 * quarter + half, x, row, n, lane, acc);
  float* mine = sums + slot * kWideRows * kTile;
  if (inside && half == 1)
#pragma unroll
    for (int j = 0; j < kTiles8; ++j) store_sums(mine, acc[j], 8 * j, lane);
  __syncthreads();
  if (!inside || half == 1) return;
  const int g = lane / 4, t = lane % 4;
  const size_t width = static_cast<size_t>(w.tiles) * kTile;
#pragma unroll
  for (int j = 0; j < kTiles8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 8 * j + 2 * t + i % 2, o = g + i / 2 * 8;
      if (row + r < n)
        quarters[(static_cast<size_t>(quarter) * static_cast<size_t>(n) +
                  static_cast<size_t>(row + r)) *
                     width +
                 static_cast<size_t>(tile * kTile + o)] = acc[j][i] + mine[r * kTile + o];
    }
}

template <WeightStorage S>
__global__ void finish_wide(MatrixRef w, int n, const float* __restrict__ quarters, Epilogue out) {
  const int width = w.tiles * kTile;
  const int o = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  if (o >= width || (out.activated != nullptr && o % kTile >= 8)) return;
  const auto total = [&](int at) {
    const auto quarter = [&](int q) {
      return quarters[(static_cast<size_t>(q) * static_cast<size_t>(n) + static_cast<size_t>(row)) *
                          static_cast<size_t>(width) +
                      static_cast<size_t>(at)];
    };
    return sum_quarters(quarter(0), quarter(1), quarter(2), quarter(3));
  };
  finish<S>(w, out, row, o, total(o), out.activated != nullptr ? total(o + 8) : 0.0f);
}

// Sums of unpacked weights: nothing is left to be scaled.
__global__ void finish_dense(MatrixRef w, const float* __restrict__ sums, Epilogue out) {
  const int width = w.tiles * kTile;
  const int o = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  if (o >= width || (out.activated != nullptr && o % kTile >= 8)) return;
  const float* of_row = sums + static_cast<size_t>(row) * static_cast<size_t>(width);
  finish<WeightStorage::kBf16>(w, out, row, o, of_row[o],
                               out.activated != nullptr ? of_row[o + 8] : 0.0f);
}

// kF32: a thread is an output (in turns, both factors of one), and one chain per row.
__global__ void chain_product(MatrixRef w, const float* __restrict__ x, int n, Epilogue out) {
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
    if (row + r < n) finish<WeightStorage::kF32>(w, out, row + r, o, sum[r], second[r]);
}

template <WeightStorage S>
void multiply_tiles(const ProductArguments& a, float* workspace, cudaStream_t stream) {
  const auto* x = static_cast<const uint4*>(a.x);
  const ProductGeometry g = product_geometry(S, a.w.tiles, a.rows);
  const dim3 grid(g.grid_x, g.grid_y, g.grid_z);
  if (!g.across) {
    const auto kernel = g.tile_rows == 8 ? narrow_product<S, 1> : narrow_product<S, 2>;
    launch("narrow_product", kernel, grid, kThreads, g.shared_bytes, stream, a.w, x, a.rows, a.out);
    return;
  }
  launch("wide_product", wide_product<S>, grid, kThreads, g.shared_bytes, stream, a.w, x, a.rows,
         workspace);
  const unsigned columns = static_cast<unsigned>(a.w.tiles * kTile + kThreads - 1) / kThreads;
  launch("finish_wide", finish_wide<S>, dim3(columns, static_cast<unsigned>(a.rows)), kThreads, 0,
         stream, a.w, a.rows, workspace, a.out);
}

void multiply_batch(const ProductArguments& a, float* workspace, cudaStream_t stream) {
  switch (a.w.storage) {
    case WeightStorage::kF32: {
      const ProductGeometry g = product_geometry(
          a.w.storage, a.out.activated ? a.w.tiles / 2 + a.w.tiles % 2 : a.w.tiles, a.rows);
      launch("chain_product", chain_product, dim3(g.grid_x, g.grid_y), kChainOutputs, 0, stream,
             a.w, static_cast<const float*>(a.x), a.rows, a.out);
      return;
    }
    case WeightStorage::kBf16:
      return multiply_tiles<WeightStorage::kBf16>(a, workspace, stream);
    case WeightStorage::kInt8Channel:
      return multiply_tiles<WeightStorage::kInt8Channel>(a, workspace, stream);
    case WeightStorage::kInt8Group:
      return multiply_tiles<WeightStorage::kInt8Group>(a, workspace, stream);
    case WeightStorage::kQ4Group:
      return multiply_tiles<WeightStorage::kQ4Group>(a, workspace, stream);
  }
}

unsigned cut(int n, int by) { return static_cast<unsigned>((n + by - 1) / by); }

}  // namespace

ProductGeometry product_geometry(WeightStorage storage, int tiles, int rows) {
  ProductGeometry g;
  g.grid_z = 1;
  if (storage == WeightStorage::kF32) {
    g.tile_rows = kChainRows;
    g.grid_x = cut(tiles * kTile, kChainOutputs);
    g.grid_y = cut(rows, kChainRows);
    g.batch_rows = kMaxProductRows;
    return g;
  }
  if (rows <= kNarrowRows) {
    g.tile_rows = rows <= 8 ? 8 : 16;
    g.grid_x = static_cast<unsigned>(tiles);
    g.grid_y = cut(rows, g.tile_rows);
    g.shared_bytes = static_cast<size_t>(kSlices) * static_cast<size_t>(g.tile_rows) * kTile * 4;
    g.batch_rows = kNarrowRows;
    return g;
  }
  g.across = true;
  g.tile_rows = kWideRows;
  g.batch_rows = kWideBatch;
  const int n = std::min(rows, kWideBatch);
  g.grid_x = cut(tiles, kWideTiles);
  g.grid_y = cut(n, kWideRows);
  g.grid_z = kQuarters;
  g.shared_bytes = static_cast<size_t>(kWideTiles) * kWideRows * kTile * 4;
  g.workspace_bytes = static_cast<size_t>(kQuarters) * static_cast<size_t>(n) *
                      static_cast<size_t>(tiles) * kTile * 4;
  return g;
}

void finish_sums(const ProductArguments& a, const float* sums, cudaStream_t stream) {
  const unsigned columns = cut(a.w.tiles * kTile, kThreads);
  launch("finish_dense", finish_dense, dim3(columns, static_cast<unsigned>(a.rows)), kThreads, 0,
         stream, a.w, sums, a.out);
}

void multiply(const ProductArguments& a, float* workspace, cudaStream_t stream) {
  check_argument(a.rows >= 1 && a.w.tiles >= 1, "an empty product");
  const int batch = product_geometry(a.w.storage, a.w.tiles, a.rows).batch_rows;
  const bool f32 = a.w.storage == WeightStorage::kF32;
  const size_t x_row =
      f32 ? static_cast<size_t>(a.w.in) * 4 : static_cast<size_t>(a.w.blocks) * kBlock * 2;
  for (int first = 0; first < a.rows; first += batch) {
    ProductArguments part = a;
    part.rows = std::min(batch, a.rows - first);
    part.x = static_cast<const unsigned char*>(a.x) + static_cast<size_t>(first) * x_row;
    const size_t skip = static_cast<size_t>(first) * static_cast<size_t>(a.out.ldy);
    if (a.out.y != nullptr) part.out.y += skip;
    if (a.out.residual != nullptr) part.out.residual += skip;
    if (a.out.activated != nullptr)
      part.out.activated = static_cast<unsigned char*>(a.out.activated) + skip * (f32 ? 4 : 2);
    multiply_batch(part, workspace, stream);
  }
}

}  // namespace evalrun::engine::cuda
