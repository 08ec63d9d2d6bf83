#include <algorithm>

#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/lane_weights.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kAhead = 4;  // blocks whose weights are under way before the first is used
// Up to this many rows, and for small matrices, all slices of a tile meet in one thread block. With
// few rows the inputs are small beside the weights. For small matrices, bringing thread blocks
// together costs more than either.
constexpr int kNarrowRows = 16;
constexpr int kBatchRows = 256;  // of one launch
constexpr int kChainRows = 4;    // rows of a thread in kF32
constexpr int kChainOutputs = 128;

static_assert(kSlices == kWarps);

// Fragments and scales of one tile and block.
template <WeightStorage S>
struct TileFactors {
  uint32_t a[2][4];
  float d[2], m[2];
  __device__ __forceinline__ explicit TileFactors(const LaneWeights<S>& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int second = 0; second < 2; ++second) a[i / 2][i % 2 * 2 + second] = w.pair(second, i);
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      d[second] = LaneWeights<S>::kScaled ? w.scale(second) : 0.0f;
      m[second] = LaneWeights<S>::kOffset ? w.offset(second) : 0.0f;
    }
  }
};

// Sums of the inputs of a block, of rows 2 t and 2 t + 1: what offsets are multiplied with.
__device__ __forceinline__ void sum_inputs(float (&sums)[2], const uint4& b) {
  const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  float all[4] = {};
  mma_bf16(all, ones, b.x, b.y);
  mma_bf16(all, ones, b.z, b.w);
  sums[0] = all[0], sums[1] = all[1];
}

// One block of inputs `b` of eight rows onto acc, D of mma_bf16. `inputs`: sum_inputs(), of
// kOffset.
template <WeightStorage S>
__device__ __forceinline__ void add_block(float (&acc)[4], const TileFactors<S>& w, const uint4& b,
                                          const float (&inputs)[2]) {
  if constexpr (!LaneWeights<S>::kScaled) {
    mma_bf16(acc, w.a[0], b.x, b.y);
    mma_bf16(acc, w.a[1], b.z, b.w);
  } else {
    float sum[4] = {};
    mma_bf16(sum, w.a[0], b.x, b.y);
    mma_bf16(sum, w.a[1], b.z, b.w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[i] = fmaf(w.d[i / 2], sum[i], acc[i]);
      if constexpr (LaneWeights<S>::kOffset) acc[i] = fmaf(w.m[i / 2], inputs[i % 2], acc[i]);
    }
  }
}

// Sum of one slice of a tile, of NT * 8 rows from `row` on, in the registers of a warp: acc[j] is
// D of mma_bf16 for rows row + 8 j ... Rows from n on count as zeros.
template <WeightStorage S, int NT>
__device__ __forceinline__ void sum_slice(const MatrixRef& w, int tile, int slice, const uint4* x,
                                          int row, int n, int lane, float (&acc)[NT][4]) {
  const Slice part = slice_of(w.blocks, slice);
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < NT; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[j][i] = 0;
  const auto load_inputs = [&](int block, int j) {
    const int r = row + 8 * j + g;
    if (r >= n) return make_uint4(0, 0, 0, 0);
    return x[(static_cast<size_t>(r) * static_cast<size_t>(w.blocks) + static_cast<size_t>(block)) *
                 4 +
             static_cast<size_t>(t)];
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
      const TileFactors<S> factors(ahead[u]);
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        uint4 b;
        if constexpr (kInputsAhead)
          b = inputs_ahead[u][j];
        else
          b = load_inputs(first + u, j);
        float inputs[2] = {};
        if constexpr (LaneWeights<S>::kOffset) sum_inputs(inputs, b);
        add_block<S>(acc[j], factors, b, inputs);
      }
    }
  }
}

__device__ __forceinline__ float4 as_float4(const float (&x)[4]) {
  return make_float4(x[0], x[1], x[2], x[3]);
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

// Sums of a warp in shared memory, [row][16 outputs] floats with a gap after each second row: lanes
// that hold four pairs of rows write to banks of their own, and so do those that read two rows.
constexpr int kSumStride = kTile + 4;  // of a row, on average
__device__ __forceinline__ int sum_at(int row, int o) { return row * kTile + row / 2 * 8 + o; }
__device__ __forceinline__ void store_sums(float* to, const float (&d)[4], int row, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) to[sum_at(row + 2 * t + i % 2, g + i / 2 * 8)] = d[i];
}

// Thread blocks that share a multiprocessor: of formats with few bytes more must be under way. As
// many as the registers allow without spilling, which is the compiler's affair.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kBlocksOfFewBytes = 3;
#else
constexpr int kBlocksOfFewBytes = 4;
#endif
template <WeightStorage S, int NT>
constexpr int kNarrowBlocks = NT == 1 && LaneWeights<S>::kScaled ? kBlocksOfFewBytes : 1;

// One tile and NT * 8 rows of a thread block; a warp is a slice.
template <WeightStorage S, int NT>
__global__ void __launch_bounds__(kThreads, (kNarrowBlocks<S, NT>))
    narrow_product(MatrixRef w, const uint4* x, int n, Epilogue out) {
  wait_for_previous();
  auto* sums = reinterpret_cast<float*>(evalrun_shared_memory());  // [slice] as of store_sums()
  constexpr int kRows = NT * 8, kSlice = kRows * kSumStride;
  const int tile = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y) * kRows;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % 32;
  float acc[NT][4];
  sum_slice<S, NT>(w, tile, warp, x, row, n, lane, acc);
#pragma unroll
  for (int j = 0; j < NT; ++j) store_sums(sums + warp * kSlice, acc[j], 8 * j, lane);
  __syncthreads();
  const auto total = [&](int at) {
    const auto quarter = [&](int q) {
      return sums[2 * q * kSlice + at] + sums[(2 * q + 1) * kSlice + at];
    };
    return sum_quarters(quarter(0), quarter(1), quarter(2), quarter(3));
  };
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kTile; i += kThreads) {
    const int r = i / kTile, o = i % kTile;
    if (row + r >= n) break;
    if (out.activated != nullptr && o >= 8) continue;
    finish<S>(w, out, row + r, tile * kTile + o, total(sum_at(r, o)),
              out.activated != nullptr ? total(sum_at(r, o + 8)) : 0.0f);
  }
}

// How wide_product uses shared memory: stages of a pipeline, each with the inputs of NT * 8 rows
// [block][row][32] and the weights of eight tiles [tile][block].
template <WeightStorage S, int NT>
struct WideShape {
  using L = LaneWeights<S>;
  static constexpr int kRows = NT * 8;
  static constexpr int kBlocks = 2;  // of a stage
  static constexpr int kInputBytes = kBlocks * kRows * kBlock * 2;
  static constexpr int kTileBytes = L::kCodeBytes + L::kScaleBytes;
  static constexpr int kStageBytes = kInputBytes + kWarps * kBlocks * kTileBytes;
  // Two thread blocks fit an sm_80 multiprocessor, one the 99 KiB of smaller ones.
  static constexpr int kStages = S == WeightStorage::kBf16 ? 3 : L::kOffset ? 5 : 4;
  // Sums of inputs, of this stage and the next: [2][block][row].
  static constexpr int kSumBytes = L::kOffset ? 2 * kBlocks * kRows * 4 : 0;
  // Fragments of 64 rows' first slices that find no register: [fragment][thread].
  static constexpr int kSaved = NT == 8 ? 2 : 0;
  static constexpr int kBytes = kStages * kStageBytes + kSumBytes + kSaved * kThreads * 16;
  static_assert(kStageBytes % 16 == 0 && kBytes <= 80 << 10);
};

// Eight tiles, NT * 8 rows and one quarter of a thread block; a warp is a tile and sums both
// slices of the quarter, one after the other. Weights and inputs come through shared memory. The
// quarters of a place meet in `quarters`, [place][quarter][NT][thread]; the thread block that comes
// last, by `counters` [place], adds them up in their order, and leaves its counter zero.
template <WeightStorage S, int NT>
__global__ void __launch_bounds__(kThreads, 2)
    wide_product(MatrixRef w, const uint4* x, int n, Epilogue out, float4* quarters,
                 unsigned* counters) {
  wait_for_previous();
  using Shape = WideShape<S, NT>;
  constexpr int kRows = Shape::kRows, kBlocks = Shape::kBlocks, kStages = Shape::kStages;
  constexpr int kSaved = Shape::kSaved;
  constexpr bool kOffset = LaneWeights<S>::kOffset;
  constexpr int kLead = kOffset ? 1 : 0;  // stages whose inputs arrive before their turn
  unsigned char* shared = evalrun_shared_memory();
  auto* input_sums = reinterpret_cast<float*>(shared + kStages * Shape::kStageBytes);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(blockIdx.x) * kRows;
  const int tile = static_cast<int>(blockIdx.y) * kWarps + warp;
  const int quarter = static_cast<int>(blockIdx.z);
  const bool inside = tile < w.tiles;  // of a whole warp
  const Slice one = slice_of(w.blocks, 2 * quarter), two = slice_of(w.blocks, 2 * quarter + 1);
  const int n_stages = (two.last - one.first + kBlocks - 1) / kBlocks;

  const auto stage_at = [&](int s) { return shared + s % kStages * Shape::kStageBytes; };
  const auto input_offset = [](int u, int r, int part) {
    return ((u * kRows + r) * 4 + part) * 16;
  };
  const auto input_at = [&](const unsigned char* stage, int u, int r) {  // of this lane
    return *reinterpret_cast<const uint4*>(stage + input_offset(u, r, t));
  };
  WeightStream<S> weights(w, inside ? tile : 0, one.first, lane);
  // A thread copies inputs of every 32nd row. Eight lanes, which write at once, have two rows of
  // one block: all banks, once.
  static_assert(kBlocks == 2);
  const int part = thread % 4, part_block = thread / 8 % kBlocks,
            part_row = thread / 16 * 2 + thread / 4 % 2;
  constexpr int kRowStep = kThreads / (4 * kBlocks);
  const uint4* inputs_at = x +
                           (static_cast<size_t>(row + part_row) * static_cast<size_t>(w.blocks) +
                            static_cast<size_t>(one.first + part_block)) *
                               4 +
                           part;
  const auto fetch = [&](int s) {  // one stage after the other
    const int left = two.last - (one.first + s * kBlocks);
    unsigned char* to = stage_at(s);
    if (part_block < left)
#pragma unroll
      for (int r = 0; r < kRows; r += kRowStep) {
        const bool given = row + part_row + r < n;
        copy_async<16>(to + input_offset(part_block, part_row + r, part),
                       given ? inputs_at + r * w.blocks * 4 : x, given);
      }
    if (inside)
#pragma unroll
      for (int u = 0; u < kBlocks; ++u)
        if (u < left)
          weights.fetch(u, lane,
                        to + Shape::kInputBytes + (warp * kBlocks + u) * Shape::kTileBytes);
    inputs_at += kBlocks * 4;
    weights.advance(kBlocks);
  };
  // A warp has the rows of one fragment.
  const auto sum_stage_inputs = [&](int s) {
    if (warp >= NT) return;
    float* to = input_sums + s % 2 * kBlocks * kRows;
#pragma unroll
    for (int u = 0; u < kBlocks; ++u) {
      if (one.first + s * kBlocks + u >= two.last) break;
      float sums[2];
      sum_inputs(sums, input_at(stage_at(s), u, 8 * warp + g));
      if (g == 0) to[u * kRows + 8 * warp + 2 * t] = sums[0];
      if (g == 0) to[u * kRows + 8 * warp + 2 * t + 1] = sums[1];
    }
  };

  float acc[NT][4] = {}, slice_one[NT - kSaved][4] = {};
  float4* saved = reinterpret_cast<float4*>(shared + Shape::kBytes) - kSaved * kThreads + thread;
#pragma unroll
  for (int j = 0; j < kSaved; ++j) saved[j * kThreads] = make_float4(0, 0, 0, 0);
  const auto add_stage = [&](int s) {
    const unsigned char* stage = stage_at(s);
#pragma unroll 1  // both at once do not fit into the registers
    for (int u = 0; u < kBlocks; ++u) {
      const int block = one.first + s * kBlocks + u;
      if (block >= two.last) break;
      if (block == one.last)
#pragma unroll
        for (int j = 0; j < NT; ++j) {
          if (j < kSaved) saved[j * kThreads] = as_float4(acc[j]);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (j >= kSaved) slice_one[j - kSaved][i] = acc[j][i];
            acc[j][i] = 0;
          }
        }
      const TileFactors<S> factors(fetched_weights<S>(
          stage + Shape::kInputBytes + (warp * kBlocks + u) * Shape::kTileBytes, lane));
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        float inputs[2] = {};
        if constexpr (kOffset) {
          const float2 sums = *reinterpret_cast<const float2*>(
              input_sums + (s % 2 * kBlocks + u) * kRows + 8 * j + 2 * t);
          inputs[0] = sums.x, inputs[1] = sums.y;
        }
        add_block<S>(acc[j], factors, input_at(stage, u, 8 * j + g), inputs);
      }
    }
  };

#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < n_stages) fetch(s);
    commit_copies();
  }
  if constexpr (kOffset) {
    wait_copies<kStages - 2>();
    __syncthreads();
    sum_stage_inputs(0);
  }
  for (int s = 0; s < n_stages; ++s) {
    wait_copies<kStages - 2 - kLead>();
    __syncthreads();  // all threads have this stage, and nobody needs the one before any more
    if (s + kStages - 1 < n_stages) fetch(s + kStages - 1);
    commit_copies();
    if constexpr (kOffset)
      if (s + 1 < n_stages) sum_stage_inputs(s + 1);
    if (inside) add_stage(s);
  }

  const size_t place = static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const auto quarter_at = [&](int q, int j) {
    return quarters +
           ((place * kQuarters + static_cast<size_t>(q)) * NT + static_cast<size_t>(j)) * kThreads +
           thread;
  };
#pragma unroll
  for (int j = 0; j < NT; ++j) {
    const float4 first = j < kSaved ? saved[j * kThreads] : as_float4(slice_one[j - kSaved]);
    if (inside && row + 8 * j < n)
      *quarter_at(quarter, j) = make_float4(first.x + acc[j][0], first.y + acc[j][1],
                                            first.z + acc[j][2], first.w + acc[j][3]);
  }
  __threadfence();
  __syncthreads();
  auto* last = reinterpret_cast<unsigned*>(shared);
  if (thread == 0) {
    *last = atomicAdd(counters + place, 1u) == kQuarters - 1;
    if (*last) counters[place] = 0;
  }
  __syncthreads();
  if (*last == 0 || !inside) return;
  __threadfence();
#pragma unroll 1
  for (int j = 0; j < NT; ++j) {
    if (row + 8 * j >= n) break;
    float4 q[kQuarters];
#pragma unroll
    for (int i = 0; i < kQuarters; ++i) q[i] = __ldcg(quarter_at(i, j));
    const float sums[4] = {
        sum_quarters(q[0].x, q[1].x, q[2].x, q[3].x), sum_quarters(q[0].y, q[1].y, q[2].y, q[3].y),
        sum_quarters(q[0].z, q[1].z, q[2].z, q[3].z), sum_quarters(q[0].w, q[1].w, q[2].w, q[3].w)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = row + 8 * j + 2 * t + i;
      if (r >= n) break;
      finish<S>(w, out, r, tile * kTile + g, sums[i], sums[i + 2]);
      if (out.activated == nullptr) finish<S>(w, out, r, tile * kTile + g + 8, sums[i + 2], 0);
    }
  }
}

// Sums of unpacked weights: nothing is left to be scaled.
__global__ void finish_dense(MatrixRef w, const float* sums, Epilogue out) {
  wait_for_previous();
  const int width = w.tiles * kTile;
  const int o = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  if (o >= width || (out.activated != nullptr && o % kTile >= 8)) return;
  const float* of_row = sums + static_cast<size_t>(row) * static_cast<size_t>(width);
  finish<WeightStorage::kBf16>(w, out, row, o, of_row[o],
                               out.activated != nullptr ? of_row[o + 8] : 0.0f);
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
    if (row + r < n) finish<WeightStorage::kF32>(w, out, row + r, o, sum[r], second[r]);
}

template <WeightStorage S>
void multiply_tiles(const ProductArguments& a, const ProductWorkspace& workspace,
                    cudaStream_t stream) {
  const auto* x = static_cast<const uint4*>(a.x);
  const ProductGeometry g = product_geometry(S, a.w.tiles, a.w.blocks, a.rows);
  const dim3 grid(g.grid_x, g.grid_y, g.grid_z);
  if (!g.across) {
    const auto kernel = g.tile_rows == 8    ? narrow_product<S, 1>
                        : g.tile_rows == 16 ? narrow_product<S, 2>
                                            : narrow_product<S, 4>;
    launch("narrow_product", kernel, grid, kThreads, g.shared_bytes, stream, a.w, x, a.rows, a.out);
    return;
  }
  check_argument(
      workspace.sums.bytes() >= g.workspace_bytes && workspace.counters.bytes() >= g.counter_bytes,
      "a product without room for its quarters");
  const auto kernel = g.tile_rows == 32 ? wide_product<S, 4> : wide_product<S, 8>;
  launch("wide_product", kernel, grid, kThreads, g.shared_bytes, stream, a.w, x, a.rows, a.out,
         workspace.sums.as<float4>(), workspace.counters.as<unsigned>());
}

void multiply_batch(const ProductArguments& a, const ProductWorkspace& workspace,
                    cudaStream_t stream) {
  switch (a.w.storage) {
    case WeightStorage::kF32: {
      const int tiles = a.out.activated ? a.w.tiles / 2 + a.w.tiles % 2 : a.w.tiles;
      const ProductGeometry g = product_geometry(a.w.storage, tiles, a.w.blocks, a.rows);
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

template <WeightStorage S>
void allow_shared_memory() {
  EVALRUN_CUDA(cudaFuncSetAttribute(wide_product<S, 4>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    WideShape<S, 4>::kBytes));
  EVALRUN_CUDA(cudaFuncSetAttribute(wide_product<S, 8>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    WideShape<S, 8>::kBytes));
}

template <WeightStorage S>
int wide_bytes(int rows) {
  return rows == 32 ? WideShape<S, 4>::kBytes : WideShape<S, 8>::kBytes;
}
int wide_bytes(WeightStorage storage, int rows) {
  switch (storage) {
    case WeightStorage::kF32:
      break;
    case WeightStorage::kBf16:
      return wide_bytes<WeightStorage::kBf16>(rows);
    case WeightStorage::kInt8Channel:
      return wide_bytes<WeightStorage::kInt8Channel>(rows);
    case WeightStorage::kInt8Group:
      return wide_bytes<WeightStorage::kInt8Group>(rows);
    case WeightStorage::kQ4Group:
      return wide_bytes<WeightStorage::kQ4Group>(rows);
  }
  return 0;
}

unsigned cut(int n, int by) { return static_cast<unsigned>((n + by - 1) / by); }

}  // namespace

ProductGeometry product_geometry(WeightStorage storage, int tiles, int blocks, int rows) {
  ProductGeometry g;
  g.grid_z = 1;
  if (storage == WeightStorage::kF32) {
    g.tile_rows = kChainRows;
    g.grid_x = cut(tiles * kTile, kChainOutputs);
    g.grid_y = cut(rows, kChainRows);
    g.batch_rows = kMaxProductRows;
    return g;
  }
  g.batch_rows = kBatchRows;
  const int n = std::min(rows, kBatchRows);
  if (rows <= kNarrowRows || int64_t{kTile} * tiles * kBlock * blocks <= small_matrix()) {
    g.tile_rows = rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
    g.grid_x = static_cast<unsigned>(tiles);
    g.grid_y = cut(n, g.tile_rows);
    g.shared_bytes = static_cast<size_t>(kSlices * g.tile_rows * kSumStride * 4);
    return g;
  }
  g.across = true;
  g.tile_rows = rows <= 32 ? 32 : 64;
  g.grid_x = cut(n, g.tile_rows);  // beside each other: they share the weights
  g.grid_y = cut(tiles, kWarps);
  g.grid_z = kQuarters;
  g.shared_bytes = static_cast<size_t>(wide_bytes(storage, g.tile_rows));
  const size_t places = static_cast<size_t>(g.grid_x) * g.grid_y;
  g.workspace_bytes = places * kQuarters * static_cast<size_t>(g.tile_rows * kWarps * kTile) * 4;
  g.counter_bytes = places * sizeof(unsigned);
  return g;
}

int64_t& small_matrix() {
  static int64_t weights = int64_t{1} << 21;
  return weights;
}

bool ProductWorkspace::ensure(const ProductGeometry& g) {
  const bool moved = sums.ensure(g.workspace_bytes);
  return counters.ensure(g.counter_bytes) || moved;
}

void prepare_products() {
  allow_shared_memory<WeightStorage::kBf16>();
  allow_shared_memory<WeightStorage::kInt8Channel>();
  allow_shared_memory<WeightStorage::kInt8Group>();
  allow_shared_memory<WeightStorage::kQ4Group>();
}

void finish_sums(const ProductArguments& a, const float* sums, cudaStream_t stream) {
  const unsigned columns = cut(a.w.tiles * kTile, kThreads);
  launch("finish_dense", finish_dense, dim3(columns, static_cast<unsigned>(a.rows)), kThreads, 0,
         stream, a.w, sums, a.out);
}

void multiply(const ProductArguments& a, const ProductWorkspace& workspace, cudaStream_t stream) {
  check_argument(a.rows >= 1 && a.w.tiles >= 1, "an empty product");
  const int batch = product_geometry(a.w.storage, a.w.tiles, a.w.blocks, a.rows).batch_rows;
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
