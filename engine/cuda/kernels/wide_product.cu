// More rows of a large matrix: thread blocks of eight tiles and a quarter of the inputs, whose sums
// meet in memory.
#include <algorithm>

#include "engine/cuda/kernels/product_parts.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kWarps = kProductWarps, kThreads = kProductThreads;

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
      const TileFactors<S> one(fetched_weights<S, kBlocks>(mine_at, u, lane, 0)),
          two(fetched_weights<S, kBlocks>(mine_at + Shape::Stream::kBytes, u, lane, 0));
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

template <WeightStorage S, bool kLarge>
auto wide_kernel(int rows) {
  return rows == 16   ? wide_product<S, 2, kLarge>
         : rows == 32 ? wide_product<S, 4, kLarge>
                      : wide_product<S, kMostFragments<S>, kLarge>;
}
template <WeightStorage S, bool kLarge>
BlockShape wide_shape_of(int rows) {
  if (rows <= 16) return {16, WideShape<S, 2, kLarge>::kBytes};
  if (rows <= 32 || kMostFragments<S> == 4) return {32, WideShape<S, 4, kLarge>::kBytes};
  return {8 * kMostFragments<S>, WideShape<S, kMostFragments<S>, kLarge>::kBytes};
}
template <WeightStorage S, bool kLarge>
void allow_wide() {
  constexpr int kMost = kMostFragments<S>;
  allow_bytes(wide_product<S, 2, kLarge>, WideShape<S, 2, kLarge>::kBytes);
  allow_bytes(wide_product<S, 4, kLarge>, WideShape<S, 4, kLarge>::kBytes);
  allow_bytes(wide_product<S, kMost, kLarge>, WideShape<S, kMost, kLarge>::kBytes);
}

// run(storage, whether its kernels take large shared memory), both as constants.
template <typename Run>
auto of_kind(WeightStorage storage, const Run& run) {
  return of_storage(storage, [&](auto s) {
    if constexpr (decltype(s)::value == WeightStorage::kBf16)
      if (large_shared_memory()) return run(s, std::true_type());
    return run(s, std::false_type());
  });
}

}  // namespace

BlockShape wide_block(WeightStorage storage, int rows) {
  return of_kind(storage, [&](auto s, auto large) {
    return wide_shape_of<decltype(s)::value, decltype(large)::value>(rows);
  });
}

void allow_wide_products() {
  for (const WeightStorage storage : kPackedStorages)
    of_kind(storage,
            [](auto s, auto large) { allow_wide<decltype(s)::value, decltype(large)::value>(); });
}

void launch_wide(const ProductArguments& a, const ProductGeometry& g,
                 const ProductWorkspace& workspace, cudaStream_t stream) {
  check_argument(
      workspace.sums.bytes() >= g.workspace_bytes && workspace.counters.bytes() >= g.counter_bytes,
      "a product without room for its quarters");
  of_kind(a.w.storage, [&](auto s, auto large) {
    launch("wide_product", wide_kernel<decltype(s)::value, decltype(large)::value>(g.tile_rows),
           dim3(g.grid_x, g.grid_y, g.grid_z), kThreads, g.shared_bytes, stream, a.w,
           static_cast<const uint4*>(a.x), a.rows, a.out, workspace.sums.as<float4>(),
           workspace.counters.as<unsigned>());
  });
}

}  // namespace evalrun::engine::cuda
