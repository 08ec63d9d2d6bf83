#include <algorithm>

#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/lane_weights.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
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
      const TileFactors<S> factors(fetched_weights<S, kBlocks>(stage, u, lane));
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

__device__ __forceinline__ float4 as_float4(const float (&x)[4]) {
  return make_float4(x[0], x[1], x[2], x[3]);
}
__device__ __forceinline__ float sum_quarters(float q0, float q1, float q2, float q3) {
  return ((q0 + q1) + q2) + q3;
}

// What an output is added to, if it is: to be loaded long before it is needed. A load after a store
// would wait for itself alone.
__device__ __forceinline__ float sum_before(const Epilogue& out, int row, int o) {
  if (out.residual == nullptr || o >= out.outputs) return 0;
  return out
      .residual[static_cast<size_t>(row) * static_cast<size_t>(out.ldy) + static_cast<size_t>(o)];
}

// Output o (of the device matrix) of one row, from its sum and, in turns, that of o + 8.
// `before`: what it is added to.
template <WeightStorage S>
__device__ __forceinline__ void finish(const MatrixRef& w, const Epilogue& out, int row, int o,
                                       float sum, float second, float before) {
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
    out.residual[at] = before + sum;
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

// How wide_product uses shared memory: stages of a pipeline. A stage is one block of inputs, or
// two, of each of two slices: the inputs of NT * 8 rows [slice], and the weights of eight tiles
// [warp][2]. Matrices in rows are read line by line, since half lines of many rows are slow to
// come: two blocks. One such thread block fills a multiprocessor: `kLarge` where its shared memory
// has four stages, else the 99 KiB that every one has. Of the others two find room on sm_80.
template <WeightStorage S, int NT, bool kLarge>
struct WideShape {
  using L = LaneWeights<S>;
  static constexpr bool kLines = S == WeightStorage::kBf16;
  static constexpr int kBlocks = kLines ? 2 : 1;
  using Stream = WeightStream<S, kBlocks>;
  static constexpr int kRows = NT * 8;
  static constexpr int kTiles = kWarps;  // of a thread block; a warp has two, of one slice
  static constexpr int kInputBytes = 2 * kBlocks * kRows * kBlock * 2;
  static constexpr int kStageBytes = kInputBytes + 2 * kTiles * Stream::kBytes;
  static constexpr int kMostBytes = kLines ? (kLarge ? 200 << 10 : 97 << 10) : 76 << 10;
  static constexpr int kStages = std::min(6, kMostBytes / kStageBytes);
  // Sums of inputs, of this stage and the next: [2][slice][row].
  static constexpr int kSumBytes = L::kOffset ? 2 * 2 * kRows * 4 : 0;
  static constexpr int kBytes = kStages * kStageBytes + kSumBytes;
  static_assert(kStages >= 2 && kStageBytes % 128 == 0 && kBytes <= kMostBytes + (4 << 10));
  // At the end one slice's sums lie there.
  static_assert(kRows * kTiles * kTile * 4 <= kStages * kStageBytes);
};

// Of eight rows, in a thread block at most: more would not fit into the registers of two of them.
template <WeightStorage S>
constexpr int kMostFragments = S == WeightStorage::kBf16 || S == WeightStorage::kInt8Group ? 8 : 4;

// Eight tiles, NT * 8 rows and one quarter of a thread block. A warp sums one slice of the quarter
// for two tiles, so that what it reads of the inputs serves twice; four warps have the first slice,
// four the second. Weights and inputs come through shared memory. The quarters of a place meet in
// `quarters`, [place][quarter][2][NT][thread of four warps]; the thread block that comes last, by
// `counters` [place], adds them up in their order, and leaves its counter zero.
template <WeightStorage S, int NT, bool kLarge>
__global__ void __launch_bounds__(kThreads, (WideShape<S, NT, kLarge>::kLines ? 1 : 2))
    wide_product(MatrixRef w, const uint4* x, int n, Epilogue out, float4* quarters,
                 unsigned* counters) {
  using Shape = WideShape<S, NT, kLarge>;
  constexpr int kRows = Shape::kRows, kStages = Shape::kStages, kHalf = kThreads / 2;
  constexpr int kBlocks = Shape::kBlocks;
  constexpr bool kOffset = LaneWeights<S>::kOffset;
  constexpr int kLead = kOffset ? 1 : 0;  // stages whose inputs arrive before their turn
  unsigned char* shared = evalrun_shared_memory();
  auto* input_sums = reinterpret_cast<float*>(shared + kStages * Shape::kStageBytes);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(blockIdx.x) * kRows;
  const int half = warp / 4;  // of the quarter
  const int quarter = static_cast<int>(blockIdx.z);
  const int tile = static_cast<int>(blockIdx.y) * Shape::kTiles + warp % 4 * 2;
  const int of_half = thread % kHalf;
  const Slice mine = slice_of(w.blocks, 2 * quarter + half);
  const int n_mine = (mine.last - mine.first + kBlocks - 1) / kBlocks;  // stages
  const auto blocks_of = [&](int s) {
    return kBlocks == 1 ? 1 : min(kBlocks, mine.last - mine.first - s * kBlocks);
  };

  // Tiles beyond the last are others once more, and not written.
  typename Shape::Stream weights(w, tile < w.tiles ? tile : 0, mine.first, lane);
  const size_t next_tile = tile + 1 < w.tiles ? 1 : 0;
  const int weights_at = Shape::kInputBytes + 2 * warp * Shape::Stream::kBytes;
  const auto fetch_weights = [&](int s, unsigned char* stage) {  // one stage after the other
    if (s >= n_mine) return;
    weights.fetch(blocks_of(s), lane, stage + weights_at);
    weights.fetch(blocks_of(s), lane, stage + weights_at + Shape::Stream::kBytes, next_tile);
    weights.advance();
  };
  // A half's threads copy the inputs of its slice, in places as of weights (row_place()).
  constexpr int kPieces = 4 * kBlocks, kRowStep = kHalf / kPieces;
  const int part_row = of_half / kPieces, part = thread % kPieces;
  const uint4* inputs_from = x +
                             (static_cast<size_t>(row + part_row) * static_cast<size_t>(w.blocks) +
                              static_cast<size_t>(mine.first)) *
                                 4 +
                             part;
  const auto fetch_inputs = [&](int s, unsigned char* stage) {
    if (s >= n_mine) return;
    unsigned char* to = stage + half * (Shape::kInputBytes / 2);
    if (part < 4 * blocks_of(s)) {
#pragma unroll
      for (int r = 0; r < kRows; r += kRowStep) {
        if (kRows < kRowStep && part_row >= kRows) break;
        const bool given = row + part_row + r < n;
        copy_async<16>(to + row_place<kBlocks>(part_row + r, part),
                       given ? inputs_from + r * w.blocks * 4 : x, given);
      }
    }
    inputs_from += kPieces;
  };
  const auto input_at = [&](const unsigned char* stage, int u, int r) {  // of this lane, its slice
    return *reinterpret_cast<const uint4*>(stage + half * (Shape::kInputBytes / 2) +
                                           row_place<kBlocks>(r, 4 * u + t));
  };
  // A warp has the rows of some fragments of its slice.
  const auto sum_stage_inputs = [&](int s, const unsigned char* stage) {
    if (s >= n_mine) return;
    float* to = input_sums + (s % 2 * 2 + half) * kRows;
#pragma unroll
    for (int j = 0; j < NT; j += 4) {
      const int r = 8 * (j + warp % 4);
      if (NT < 4 && r >= kRows) break;
      float sums[2];
      sum_inputs(sums, input_at(stage, 0, r + g));
      if (g == 0) to[r + 2 * t] = sums[0];
      if (g == 0) to[r + 2 * t + 1] = sums[1];
    }
  };

  float acc[2][NT][4] = {};
  static_assert(!kOffset || kBlocks == 1, "one block's sums of inputs a stage");
  const auto add_stage = [&](int s, const unsigned char* stage) {
    const unsigned char* mine_at = stage + weights_at;
#pragma unroll
    for (int u = 0; u < kBlocks; ++u) {
      if (u >= blocks_of(s)) break;
      const TileFactors<S> one(fetched_weights<S, kBlocks>(mine_at, u, lane)),
          two(fetched_weights<S, kBlocks>(mine_at + Shape::Stream::kBytes, u, lane));
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        float sums[2] = {};
        if constexpr (kOffset) {
          const float2 both = *reinterpret_cast<const float2*>(
              input_sums + (s % 2 * 2 + half) * kRows + 8 * j + 2 * t);
          sums[0] = both.x, sums[1] = both.y;
        }
        const uint4 b = input_at(stage, u, 8 * j + g);
        add_block<S>(acc[0][j], one, b, sums);
        add_block<S>(acc[1][j], two, b, sums);
      }
    }
  };

  const auto next = [](int at) {
    at += Shape::kStageBytes;
    return at == kStages * Shape::kStageBytes ? 0 : at;
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) fetch_weights(s, shared + s * Shape::kStageBytes);
  wait_for_previous();  // the weights are under way
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    fetch_inputs(s, shared + s * Shape::kStageBytes);
    commit_copies();  // the first of them with all those weights
  }
  if constexpr (kOffset) {
    wait_copies<kStages - 2>();
    __syncthreads();
    sum_stage_inputs(0, shared);
  }
  int read = 0, write = (kStages - 1) * Shape::kStageBytes;
#pragma unroll 1
  for (int s = 0; s < n_mine; ++s) {
    wait_copies<kStages - 2 - kLead>();
    __syncthreads();  // all threads have this stage, and nobody needs the one before any more
    fetch_weights(s + kStages - 1, shared + write);
    fetch_inputs(s + kStages - 1, shared + write);
    commit_copies();
    if constexpr (kOffset) sum_stage_inputs(s + 1, shared + next(read));
    add_stage(s, shared + read);
    read = next(read), write = next(write);
  }
  // The other slice may have a block more: its barrier.
  if (n_mine < (slice_blocks_at_most(w.blocks) + kBlocks - 1) / kBlocks) __syncthreads();

  // The second slice's sums come to the first's warps, which add and write them.
  wait_copies<0>();
  __syncthreads();
  auto* second = reinterpret_cast<float4*>(shared);  // [2][NT][thread of four warps]
  if (half == 1) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j) second[(i * NT + j) * kHalf + of_half] = as_float4(acc[i][j]);
  }
  __syncthreads();
  const size_t place = static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const auto quarter_at = [&](int q, int i, int j) {
    return quarters +
           ((place * kQuarters + static_cast<size_t>(q)) * 2 * NT +
            static_cast<size_t>(i * NT + j)) *
               kHalf +
           of_half;
  };
  if (half == 0) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        if (tile + i >= w.tiles || row + 8 * j >= n) break;
        const float4 other = second[(i * NT + j) * kHalf + of_half];
        *quarter_at(quarter, i, j) = make_float4(acc[i][j][0] + other.x, acc[i][j][1] + other.y,
                                                 acc[i][j][2] + other.z, acc[i][j][3] + other.w);
      }
  }
  // One thread's fences count for its block: barriers stand between.
  __syncthreads();
  auto* last = reinterpret_cast<unsigned*>(shared);
  if (thread == 0) {
    __threadfence();
    *last = atomicAdd(counters + place, 1u) == kQuarters - 1;
    if (*last) counters[place] = 0;
    __threadfence();
  }
  __syncthreads();
  if (*last == 0 || tile + half >= w.tiles) return;
  // Each warp has one of its tiles now. What is read of some fragments comes before what is
  // written.
  constexpr int kTogether = 2;
  const int o = (tile + half) * kTile + g;
#pragma unroll 1
  for (int begin = 0; begin < NT; begin += kTogether) {
    if (row + 8 * begin >= n) break;
    float4 q[kTogether][kQuarters];
    float before[kTogether][4];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const bool there = row + 8 * (begin + j) < n;
#pragma unroll
      for (int i = 0; i < kQuarters; ++i)
        q[j][i] = there ? __ldcg(quarter_at(i, half, begin + j)) : make_float4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = row + 8 * (begin + j) + 2 * t + i % 2;
        before[j][i] = r < n ? sum_before(out, r, o + i / 2 * 8) : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const auto& p = q[j];
      const float sums[4] = {sum_quarters(p[0].x, p[1].x, p[2].x, p[3].x),
                             sum_quarters(p[0].y, p[1].y, p[2].y, p[3].y),
                             sum_quarters(p[0].z, p[1].z, p[2].z, p[3].z),
                             sum_quarters(p[0].w, p[1].w, p[2].w, p[3].w)};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = row + 8 * (begin + j) + 2 * t + i;
        if (r >= n) break;
        finish<S>(w, out, r, o, sums[i], sums[i + 2], before[j][i]);
        if (out.activated == nullptr) finish<S>(w, out, r, o + 8, sums[i + 2], 0, before[j][i + 2]);
      }
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

template <WeightStorage S, bool kLarge>
auto wide_kernel(int rows) {
  return rows == 16   ? wide_product<S, 2, kLarge>
         : rows == 32 ? wide_product<S, 4, kLarge>
                      : wide_product<S, kMostFragments<S>, kLarge>;
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
  const auto kernel = [&] {
    if constexpr (S == WeightStorage::kBf16)
      if (large_shared_memory()) return wide_kernel<S, true>(g.tile_rows);
    return wide_kernel<S, false>(g.tile_rows);
  }();
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

template <typename Kernel>
void allow_bytes(Kernel* kernel, int bytes) {
  EVALRUN_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}
template <WeightStorage S>
constexpr int kNarrowBytes = kWarps* NarrowShape<S>::kBytes;
template <WeightStorage S, bool kLarge>
void allow_wide() {
  constexpr int kMost = kMostFragments<S>;
  allow_bytes(wide_product<S, 2, kLarge>, WideShape<S, 2, kLarge>::kBytes);
  allow_bytes(wide_product<S, 4, kLarge>, WideShape<S, 4, kLarge>::kBytes);
  allow_bytes(wide_product<S, kMost, kLarge>, WideShape<S, kMost, kLarge>::kBytes);
}
template <WeightStorage S>
void allow_shared_memory() {
  allow_bytes(narrow_product<S, 1>, kNarrowBytes<S>);
  allow_bytes(narrow_product<S, 2>, kNarrowBytes<S>);
  allow_bytes(narrow_product<S, 4>, kNarrowBytes<S>);
  allow_wide<S, false>();
}

// Of a thread block: rows and shared memory.
struct BlockShape {
  int rows;
  int bytes;
};
template <WeightStorage S, bool kLarge>
BlockShape wide_shape_of(int rows) {
  if (rows <= 16) return {16, WideShape<S, 2, kLarge>::kBytes};
  if (rows <= 32 || kMostFragments<S> == 4) return {32, WideShape<S, 4, kLarge>::kBytes};
  return {8 * kMostFragments<S>, WideShape<S, kMostFragments<S>, kLarge>::kBytes};
}
template <WeightStorage S>
BlockShape block_shape_of(int rows, bool across) {
  if (!across) return {rows <= 8 ? 8 : rows <= 16 ? 16 : 32, kNarrowBytes<S>};
  if constexpr (S == WeightStorage::kBf16)
    if (large_shared_memory()) return wide_shape_of<S, true>(rows);
  return wide_shape_of<S, false>(rows);
}
BlockShape block_shape(WeightStorage storage, int rows, bool across) {
  switch (storage) {
    case WeightStorage::kF32:
      break;
    case WeightStorage::kBf16:
      return block_shape_of<WeightStorage::kBf16>(rows, across);
    case WeightStorage::kInt8Channel:
      return block_shape_of<WeightStorage::kInt8Channel>(rows, across);
    case WeightStorage::kInt8Group:
      return block_shape_of<WeightStorage::kInt8Group>(rows, across);
    case WeightStorage::kQ4Group:
      return block_shape_of<WeightStorage::kQ4Group>(rows, across);
  }
  return {};
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
  g.across = rows > narrow_rows() && int64_t{kTile} * tiles * kBlock * blocks > small_matrix();
  const BlockShape block = block_shape(storage, rows, g.across);
  g.tile_rows = block.rows;
  g.shared_bytes = static_cast<size_t>(block.bytes);
  if (!g.across) {
    g.grid_x = static_cast<unsigned>(tiles);
    g.grid_y = cut(n, g.tile_rows);
    return g;
  }
  g.grid_x = cut(n, g.tile_rows);  // beside each other: they share the weights
  g.grid_y = cut(tiles, kWarps);
  g.grid_z = kQuarters;
  const size_t places = static_cast<size_t>(g.grid_x) * g.grid_y;
  g.workspace_bytes = places * kQuarters * static_cast<size_t>(g.tile_rows * kWarps * kTile) * 4;
  g.counter_bytes = places * sizeof(unsigned);
  return g;
}

int& narrow_rows() {
  static int rows = 16;
  return rows;
}

bool& large_shared_memory() {
  static bool large = false;
  return large;
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
  int device = 0;
  cudaDeviceProp properties;
  EVALRUN_CUDA(cudaGetDevice(&device));
  EVALRUN_CUDA(cudaGetDeviceProperties(&properties, device));
  large_shared_memory() = properties.sharedMemPerBlockOptin >= size_t{200} << 10;
  if (large_shared_memory()) allow_wide<WeightStorage::kBf16, true>();
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
