// Any number of rows on a GPU of compute capability 9.0 (EVALRUN_CUDA_PATH=hopper): weights stream
// through shared memory by bulk copies, wgmma multiplies them, slices meet in a cluster.
#include <algorithm>

#include "engine/cuda/kernels/hopper_code.h"
#include "engine/cuda/kernels/product_parts.h"

namespace evalrun::engine::cuda {
namespace {

// A cluster has a thread block for each slice. One or two warpgroups of it multiply, each a group
// of 64 outputs (four tiles, one a warp) after the other, so that one has work while the other
// waits. The inputs of the slice stay in shared memory; the weights come through a ring that one
// more warp keeps filled, whatever the others do.
constexpr int kWarps = 4, kGroupTiles = kWarps;  // of a warpgroup
constexpr int kMostGroups = 2;                   // warpgroups of a thread block
constexpr int threads_of(int groups) { return (groups * kWarps + 1) * kWarp; }
constexpr int kMostStages = 12;
constexpr int kBarrierBytes = 256;  // full and empty of each stage; sums that came, that are taken
static_assert((2 * kMostStages + 2 * kMostGroups) * 8 <= kBarrierBytes);
constexpr int kMostShared = 227 << 10;

// Bytes of a stage of so many blocks, an even number. Rows of bfloat16 lie in pairs whose halves of
// 64 bytes are in different banks; of codes a tile's blocks lie together, then all scales.
template <WeightStorage S>
EVALRUN_DEVICE constexpr int pair_bytes(int blocks) {
  return 2 * blocks * kBlock * 2 + 64;
}
template <WeightStorage S>
EVALRUN_DEVICE constexpr int stage_bytes(int blocks) {
  using L = LaneWeights<S>;
  return S == WeightStorage::kBf16 ? kGroupTiles * kTile / 2 * pair_bytes<S>(blocks)
                                   : kGroupTiles * blocks * (L::kCodeBytes + L::kScaleBytes);
}

// Where things are in shared memory, for NT * 8 rows and slices of at most so many blocks.
template <WeightStorage S, int NT>
struct HopperShape {
  static constexpr int kRows = NT * 8;
  static constexpr int kBlockBytes = kRows * kBlock * 2;  // of a block's inputs
#if EVALRUN_HOPPER_CODE
  // [block][step][8 rows][half][row][8]: a step is 16 of a block's inputs, those that a lane of
  // mma_bf16 has in its words 0 and 1, or 2 and 3, so that sums are cut as there.
  static constexpr int kStepBytes = kBlockBytes / 2, kLeading = 128, kStride = 256;
#endif
  // Sums of inputs [block][row], of kOffset.
  static constexpr int kSumBytes = LaneWeights<S>::kOffset ? kRows * 4 : 0;
  // What other slices have of this block's rows, of a warpgroup: [slice][NT][tile][g] of outputs g
  // and g + 8.
  static constexpr int kMeetBytes = kSlices * NT * kWarp * 8;
  EVALRUN_DEVICE static constexpr int fixed(int blocks, int groups) {
    return kBarrierBytes + groups * kMeetBytes + blocks * (kBlockBytes + kSumBytes);
  }
};

#if EVALRUN_HOPPER_CODE
// The order in which stages come through the ring: groups of outputs that are multiplied at once
// take turns, stage by stage. Each has every at_once-th stage of the ring for itself: one that
// waited for a stage which the other had the round before could take that round for its own, as a
// barrier's parity tells two rounds apart and no more.
struct StageOrder {
  int groups, at_once, next_groups;  // all; at once; from the first of these to the next first
  int n_stages, stages;              // of a group; of the ring, a multiple of at_once
  int base;                          // first of the groups at once
  int stage_of_group = 0, member = 0;
  int first = 0;        // stage of the ring that member 0 has
  unsigned parity = 0;  // of its round
  __device__ __forceinline__ bool more() const { return n_stages > 0 && base < groups; }
  __device__ __forceinline__ int stage() const { return first + member; }
  __device__ __forceinline__ void next() {
    if (++member < at_once && base + member < groups) return;
    member = 0;
    first += at_once;
    if (first == stages) first = 0, parity ^= 1u;
    if (++stage_of_group < n_stages) return;
    stage_of_group = 0, base += next_groups;
  }
};

// Block u of a stage, for a lane of the warp that has tile `tile` of the group.
template <WeightStorage S>
__device__ __forceinline__ LaneWeights<S> staged_weights(const unsigned char* stage, int room,
                                                         int tile, int u, int lane) {
  using L = LaneWeights<S>;
  LaneWeights<S> r = {};
  if constexpr (S == WeightStorage::kBf16) {
    // Outputs g and g + 8 are the same half of two pairs.
    const int row = tile * kTile + lane / 4;
    const unsigned char* at = stage + row / 2 * pair_bytes<S>(room) +
                              row % 2 * (pair_bytes<S>(room) + 64) / 2 + u * (kBlock * 2) +
                              lane % 4 * 16;
    r.codes = *reinterpret_cast<const uint4*>(at);
    r.more = *reinterpret_cast<const uint4*>(at + 4 * pair_bytes<S>(room));
  } else {
    const unsigned char* codes = stage + (tile * room + u) * L::kCodeBytes;
    const unsigned char* scales =
        stage + kGroupTiles * room * L::kCodeBytes + (tile * room + u) * L::kScaleBytes;
    if constexpr (S == WeightStorage::kQ4Group) {
      const uint2 words = reinterpret_cast<const uint2*>(codes)[lane];
      r.codes.x = words.x, r.codes.y = words.y;
      r.scales = reinterpret_cast<const uint2*>(scales)[lane / 4];
    } else {
      r.codes = reinterpret_cast<const uint4*>(codes)[lane];
      if constexpr (L::kScaled) r.scales.x = reinterpret_cast<const uint32_t*>(scales)[lane / 4];
    }
  }
  return r;
}

// The copies of one stage, by all lanes of a warp: `blocks` of it from `block` on, of four tiles.
// Tiles beyond the last are that one once more.
template <WeightStorage S>
__device__ __forceinline__ void copy_stage(const MatrixRef& w, int group, int block, int blocks,
                                           unsigned char* stage, int room, uint64_t* full,
                                           int lane) {
  using L = LaneWeights<S>;
  const auto tile = [&](int i) { return min(group * kGroupTiles + i, w.tiles - 1); };
  if (lane == 0)
    arrive_expecting(
        full, static_cast<unsigned>(kGroupTiles * blocks * (L::kCodeBytes + L::kScaleBytes)));
  __syncwarp();
  if constexpr (S == WeightStorage::kBf16) {
#pragma unroll
    for (int row = lane; row < kGroupTiles * kTile; row += kWarp) {
      const size_t o = static_cast<size_t>(tile(row / kTile) * kTile + row % kTile);
      copy_bulk(
          stage + row / 2 * pair_bytes<S>(room) + row % 2 * (pair_bytes<S>(room) + 64) / 2,
          w.codes + (o * static_cast<size_t>(w.blocks) + static_cast<size_t>(block)) * (kBlock * 2),
          static_cast<unsigned>(blocks * kBlock * 2), full);
    }
  } else {
    const int i = lane % kGroupTiles;
    const size_t at = block_index(w, tile(i), block);
    if (lane < kGroupTiles)
      copy_bulk(stage + i * room * L::kCodeBytes, w.codes + at * L::kCodeBytes,
                static_cast<unsigned>(blocks * L::kCodeBytes), full);
    else if (L::kScaled && lane < 2 * kGroupTiles)
      copy_bulk(stage + (kGroupTiles * L::kCodeBytes + i * L::kScaleBytes) * room,
                w.scales + at * L::kScaleBytes, static_cast<unsigned>(blocks * L::kScaleBytes),
                full);
  }
}

// The inputs of a slice, of rows `row` on, to where wgmma reads them; rows from n on are zeros. By
// the warps that multiply.
template <WeightStorage S, int NT>
__device__ __forceinline__ void bring_inputs(const MatrixRef& w, const uint4* x, int row, int n,
                                             const Slice& mine, unsigned char* inputs,
                                             float* input_sums, int warp, int warps, int lane) {
  using Shape = HopperShape<S, NT>;
  constexpr int kTogether = 8;  // loads under way
  const int g = lane / 4, t = lane % 4;
  const int pieces = (mine.last - mine.first) * NT;  // a block of eight rows each
#pragma unroll 1
  for (int first = warp; first < pieces; first += warps * kTogether) {
    uint4 v[kTogether];
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      const int i = first + e * warps, r = row + i % NT * 8 + g;
      v[e] = i < pieces && r < n ? x[(static_cast<size_t>(r) * static_cast<size_t>(w.blocks) +
                                      static_cast<size_t>(mine.first + i / NT)) *
                                         4 +
                                     static_cast<size_t>(t)]
                                 : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      const int i = first + e * warps, block = i / NT, j = i % NT;
      if (i >= pieces) break;
      auto* to =
          reinterpret_cast<uint32_t*>(inputs + block * Shape::kBlockBytes + j * Shape::kStride) +
          lane;
      to[0] = v[e].x;
      to[Shape::kLeading / 4] = v[e].y;
      to[Shape::kStepBytes / 4] = v[e].z;
      to[(Shape::kStepBytes + Shape::kLeading) / 4] = v[e].w;
      if constexpr (LaneWeights<S>::kOffset) {
        float sums[2];
        sum_inputs(sums, v[e]);
        if (g == 0)
          *reinterpret_cast<float2*>(input_sums + block * Shape::kRows + 8 * j + 2 * t) =
              make_float2(sums[0], sums[1]);
      }
    }
  }
}

// One stage onto acc: `blocks` of it, whose inputs begin at `inputs`. wgmma adds to acc; of scaled
// storages it sums each block from zero, and the sums are scaled and added one after the other.
// `tile`: of the group, this warp's.
template <WeightStorage S, int NT>
__device__ __forceinline__ void add_stage(float (&acc)[NT][4], const unsigned char* stage, int room,
                                          int blocks, const unsigned char* inputs,
                                          const float* input_sums, int tile, int lane) {
  using Shape = HopperShape<S, NT>;
  using L = LaneWeights<S>;
  const auto inputs_at = [&](int u, int step) {
    return matrix_descriptor(inputs + u * Shape::kBlockBytes + step * Shape::kStepBytes,
                             Shape::kLeading, Shape::kStride);
  };
  const auto factors = [&](int u) {
    return TileFactors<S>(staged_weights<S>(stage, room, tile, u, lane));
  };
  if constexpr (!L::kScaled) {
    const auto issue = [&](const TileFactors<S>& f, int u) {
      wgmma_fence();
      wgmma_bf16<NT>(acc, f.a[0], inputs_at(u, 0), true);
      wgmma_bf16<NT>(acc, f.a[1], inputs_at(u, 1), true);
      wgmma_commit();
    };
    // Two sets of registers take turns: while wgmma reads one, the other is filled.
#pragma unroll 1
    for (int u = 0; u < blocks; u += 2) {
      const TileFactors<S> one = factors(u);
      wgmma_wait<0>();
      issue(one, u);
      if (u + 1 == blocks) break;
      const TileFactors<S> two = factors(u + 1);
      wgmma_wait<0>();
      issue(two, u + 1);
    }
    wgmma_wait<0>();
    hold<NT>(acc);
  } else {
    float sum[2][NT][4] = {};
    const auto issue = [&](float(&to)[NT][4], const TileFactors<S>& f, int u) {
      wgmma_bf16<NT>(to, f.a[0], inputs_at(u, 0), false);
      wgmma_bf16<NT>(to, f.a[1], inputs_at(u, 1), true);
    };
    const auto add = [&](float(&from)[NT][4], const TileFactors<S>& f, int u) {
      hold<NT>(from);
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        float2 of_inputs = make_float2(0, 0);
        if constexpr (L::kOffset)
          of_inputs = *reinterpret_cast<const float2*>(input_sums + u * Shape::kRows + 8 * j +
                                                       lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[j][i] = fmaf(f.d[i / 2], from[j][i], acc[j][i]);
          if constexpr (L::kOffset)
            acc[j][i] = fmaf(f.m[i / 2], i % 2 == 0 ? of_inputs.x : of_inputs.y, acc[j][i]);
        }
      }
    };
    // Two blocks at once: codes of both are unpacked side by side.
    int u = 0;
#pragma unroll 1
    for (; u + 1 < blocks; u += 2) {
      const TileFactors<S> one = factors(u), two = factors(u + 1);
      wgmma_fence();
      issue(sum[0], one, u);
      issue(sum[1], two, u + 1);
      wgmma_commit();
      wgmma_wait<0>();
      add(sum[0], one, u);
      add(sum[1], two, u + 1);
    }
    if (u < blocks) {
      const TileFactors<S> one = factors(u);
      wgmma_fence();
      issue(sum[0], one, u);
      wgmma_commit();
      wgmma_wait<0>();
      add(sum[0], one, u);
    }
  }
}
#endif

// `stages` of `room` blocks. Clusters take groups of four tiles in turns, as many at once as they
// have warpgroups; blockIdx.y is NT * 8 rows.
template <WeightStorage S, int NT>
__global__ void __launch_bounds__(threads_of(kMostGroups), 1)
    hopper_product(MatrixRef w, const uint4* x, int n, Epilogue out, int stages, int room) {
#if EVALRUN_HOPPER_CODE
  using Shape = HopperShape<S, NT>;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int rank = cluster_rank();
  const Slice mine = slice_of(w.blocks, rank);
  const int blocks = mine.last - mine.first, n_stages = (blocks + room - 1) / room;
  const int row = static_cast<int>(blockIdx.y) * Shape::kRows;
  const int groups = (w.tiles + kGroupTiles - 1) / kGroupTiles;  // of outputs
  // Of this thread block: warpgroups, the warp that copies, groups of outputs.
  const int mine_at_once = static_cast<int>(blockDim.x) / (kWarps * kWarp);
  const int copying = mine_at_once * kWarps;
  const int first_group = static_cast<int>(blockIdx.x) / kSlices * mine_at_once;
  const int next_groups = static_cast<int>(gridDim.x) / kSlices * mine_at_once;

  unsigned char* shared = evalrun_shared_memory();
  auto* full = reinterpret_cast<uint64_t*>(shared);
  uint64_t *empty = full + kMostStages, *came = full + 2 * kMostStages, *taken = came + kMostGroups;
  unsigned char* inputs = shared + kBarrierBytes + mine_at_once * Shape::kMeetBytes;
  auto* input_sums = reinterpret_cast<float*>(inputs + blocks * Shape::kBlockBytes);
  unsigned char* ring = shared + Shape::fixed(slice_blocks_at_most(w.blocks), mine_at_once);
  if (thread == 0) {
    for (int s = 0; s < stages; ++s) {
      init_mbarrier(full + s, 1);
      init_mbarrier(empty + s, kWarps);
    }
    for (int m = 0; m < mine_at_once; ++m) {
      init_mbarrier(came + m, kSlices * kWarps);
      init_mbarrier(taken + m, kSlices * kWarps);
    }
    fence_mbarriers();
  }
  // Nobody arrives anywhere before that is done.
  __syncwarp();
  cluster_arrive();
  cluster_wait();

  const auto stage_at = [&](int s) { return ring + s * stage_bytes<S>(room); };
  const auto blocks_of = [&](int s) { return min(room, blocks - s * room); };
  StageOrder order = {groups, mine_at_once, next_groups, n_stages, stages, first_group};
  const auto copy = [&] {
    const int stage = order.stage();
    copy_stage<S>(w, order.base + order.member, mine.first + order.stage_of_group * room,
                  blocks_of(order.stage_of_group), stage_at(stage), room, full + stage, lane);
    order.next();
  };
  // The first stages are asked for before the kernel before has ended.
  if (warp == copying)
    while (order.more() && order.parity == 0) copy();
  wait_for_previous();
  if (warp != copying) {
    bring_inputs<S, NT>(w, x, row, n, mine, inputs, input_sums, warp, copying, lane);
    hand_over_shared();
  }
  __syncthreads();

  if (warp == copying) {
    while (order.more()) {
      wait_mbarrier(empty + order.stage(), order.parity ^ 1u);
      copy();
    }
  } else {
    const int member = warp / kWarps, of_group = warp % kWarps, g = lane / 4, t = lane % 4;
    auto* meeting = reinterpret_cast<float2*>(shared + kBarrierBytes + member * Shape::kMeetBytes);
    came += member, taken += member;
    unsigned meetings = 0;
#pragma unroll 1
    for (int group = first_group + member; group < groups; group += next_groups, ++meetings) {
      float acc[NT][4] = {};
#pragma unroll 1
      for (int s = 0; s < n_stages; ++s) {
        while (order.member != member) order.next();
        const int stage = order.stage();
        wait_mbarrier(full + stage, order.parity);
        add_stage<S, NT>(acc, stage_at(stage), room, blocks_of(s),
                         inputs + s * room * Shape::kBlockBytes,
                         input_sums + s * room * Shape::kRows, of_group, lane);
        __syncwarp();  // nobody needs this stage any more
        if (lane == 0) arrive(empty + stage);
        order.next();
      }

      // Row 8 j + r of all slices meets in block r, which adds and writes it.
      constexpr int kEach = (NT + kWarps - 1) / kWarps;
      const int tile = group * kGroupTiles + lane / 8, o = tile * kTile + lane % 8;
      float before[kEach][2] = {};
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int j = of_group + e * kWarps, r = row + 8 * j + rank;
        if (j >= NT || r >= n || tile >= w.tiles) continue;
        before[e][0] = sum_before(out, r, o);
        if (out.activated == nullptr) before[e][1] = sum_before(out, r, o + 8);
      }
      if (meetings > 0) wait_cluster_mbarrier(taken, (meetings - 1) & 1u);
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int r = 2 * t + e;
          if (row + 8 * j + r >= n) continue;
          store_at(meeting + (rank * NT + j) * kWarp + of_group * 8 + g, r, acc[j][e],
                   acc[j][e + 2]);
        }
      __syncwarp();
      if (lane < kSlices) arrive_at(came, lane);
      wait_cluster_mbarrier(came, meetings & 1u);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int j = of_group + e * kWarps, r = row + 8 * j + rank;
        if (j >= NT || r >= n || tile >= w.tiles) continue;
        float2 q[kQuarters];
#pragma unroll
        for (int i = 0; i < kQuarters; ++i) {
          const float2 one = meeting[(2 * i * NT + j) * kWarp + lane],
                       two = meeting[((2 * i + 1) * NT + j) * kWarp + lane];
          q[i] = make_float2(one.x + two.x, one.y + two.y);
        }
        const float sum = sum_quarters(q[0].x, q[1].x, q[2].x, q[3].x),
                    second = sum_quarters(q[0].y, q[1].y, q[2].y, q[3].y);
        finish<S>(w, out, r, o, sum, second, before[e][0]);
        if (out.activated == nullptr) finish<S>(w, out, r, o + 8, second, 0, before[e][1]);
      }
      __syncwarp();
      if (lane < kSlices) arrive_at(taken, lane);
    }
  }
  // Others may still write here, or arrive.
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#else
  (void)w, (void)x, (void)n, (void)out, (void)stages, (void)room;
#if defined(__CUDA_ARCH__)
  __trap();  // a build without code for sm_90a; both presets have it
#endif
#endif
}

// How rows of a matrix use a thread block; no rows: its inputs have no room there.
struct HopperPlan {
  int rows = 0, groups = 0, stages = 0, room = 0;
  int fixed_bytes = 0, stage_bytes = 0;
};
template <WeightStorage S, int NT>
HopperPlan plan_of(int blocks, int most_groups) {
  // Two warpgroups where four stages are left; long pieces of rows where three are.
  for (int groups = most_groups; groups > 0; --groups)
    for (const int room : {8, 4}) {
      const int fixed = HopperShape<S, NT>::fixed(blocks, groups);
      const int stages = std::min(kMostStages, (kMostShared - fixed) / stage_bytes<S>(room));
      if (stages >= (groups > 1 ? 4 : room > 4 ? 3 : 2))
        return {NT * 8, groups, stages, room, fixed, stage_bytes<S>(room)};
    }
  return {};
}
// The most rows that are asked for and fit.
template <WeightStorage S>
HopperPlan plan_for(int blocks, int rows, int groups) {
  HopperPlan plan;
  if (rows > 32) plan = plan_of<S, 8>(blocks, groups);
  if (plan.rows == 0 && rows > 16) plan = plan_of<S, 4>(blocks, groups);
  if (plan.rows == 0 && rows > 8) plan = plan_of<S, 2>(blocks, groups);
  if (plan.rows == 0) plan = plan_of<S, 1>(blocks, groups);
  return plan;
}

int cut(int n, int by) { return (n + by - 1) / by; }

template <WeightStorage S>
auto kernel_for(int rows) {
  return rows == 8    ? hopper_product<S, 1>
         : rows == 16 ? hopper_product<S, 2>
         : rows == 32 ? hopper_product<S, 4>
                      : hopper_product<S, 8>;
}

}  // namespace

bool hopper_geometry(WeightStorage storage, int tiles, int blocks, int rows, ProductGeometry& g) {
  if (k_bits(storage) != 0) return false;
  const int of_slice = slice_blocks_at_most(blocks), groups = cut(tiles, kGroupTiles);
  const auto plan_with = [&](int at_once) {
    return of_plain_storage(
        storage, [&](auto s) { return plan_for<decltype(s)::value>(of_slice, rows, at_once); });
  };
  HopperPlan plan = plan_with(kMostGroups);
  if (plan.rows == 0) return false;
  const int row_groups = cut(rows, plan.rows);
  int clusters = std::max(1, clusters_together() / row_groups);
  // As many outputs at once as keep all clusters at work.
  if (groups <= clusters) plan = plan_with(1);
  clusters = std::min(clusters, cut(groups, plan.groups));
  // No more stages than there are things to bring, and as many for each warpgroup (StageOrder).
  const int uses = cut(of_slice, plan.room) * cut(groups, clusters);
  g.cluster = true;
  g.tile_rows = plan.rows;
  g.groups = plan.groups;
  g.stages = cut(std::min(uses, plan.stages - plan.groups + 1), plan.groups) * plan.groups;
  g.stage_blocks = plan.room;
  g.shared_bytes = static_cast<size_t>(plan.fixed_bytes + g.stages * plan.stage_bytes);
  g.grid_x = static_cast<unsigned>(kSlices * clusters);
  g.grid_y = static_cast<unsigned>(cut(rows, plan.rows));
  return true;
}

void allow_hopper_products() {
  using enum WeightStorage;
  for (const WeightStorage storage : {kBf16, kInt8Channel, kInt8Group, kQ4Group})
    of_plain_storage(storage, [](auto s) {
      for (const int rows : {8, 16, 32, 64})
        allow_bytes(kernel_for<decltype(s)::value>(rows), kMostShared);
    });
  // One that must wait for another's end would double the time: how many there are at once depends
  // on how a GPU's multiprocessors are grouped.
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeClusterDimension;
  together.val.clusterDim.x = kSlices;
  together.val.clusterDim.y = together.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kSlices);
  config.blockDim = dim3(static_cast<unsigned>(threads_of(kMostGroups)));
  config.dynamicSmemBytes = kMostShared;
  config.attrs = &together, config.numAttrs = 1;
  EVALRUN_CUDA(
      cudaOccupancyMaxActiveClusters(&clusters_together(), kernel_for<kBf16>(64), &config));
  check_argument(clusters_together() > 0, "no cluster of eight thread blocks fits this device");
}

int& clusters_together() {
  static int n = 1;
  return n;
}

void launch_hopper(const ProductArguments& a, const ProductGeometry& g, cudaStream_t stream) {
  of_plain_storage(a.w.storage, [&](auto s) {
    launch_in_clusters("hopper_product", kernel_for<decltype(s)::value>(g.tile_rows),
                       dim3(g.grid_x, g.grid_y, g.grid_z), kSlices, threads_of(g.groups),
                       g.shared_bytes, stream, a.w, static_cast<const uint4*>(a.x), a.rows, a.out,
                       g.stages, g.stage_blocks);
  });
}

}  // namespace evalrun::engine::cuda
