// Chunks' partial results to outputs: what merge_chunks and the persistent kernel have of it.
#pragma once
#include "engine/cuda/kernels/attention_parts.h"

namespace evalrun::engine::cuda {

constexpr int kMostMergeBatch = kWarp;  // a lane finds the factors of one chunk
constexpr int kMergeTogether = 8;       // chunks whose factors are read at once

// Dimensions of a thread, so that a head is whole warps.
constexpr int merge_dims(int d) { return d < 64 ? 1 : 2; }
constexpr int merge_threads(int d) { return d / merge_dims(d); }

// Where the partial results of one row and head are.
template <int D>
struct PartialResults {
  const float2* running;  // by slot
  const float* values;    // by slot, of this thread's dimensions
  int prefix_chunks, skipped, n;

  // Chunks of the prefix first, then those from the oldest key's on.
  __device__ __forceinline__ int slot_of(int c) const {
    return c < prefix_chunks ? c : c + skipped;
  }
  // Lane `lane`'s of the chunks from `begin` on; empty where there is none.
  __device__ __forceinline__ Running running_of(int begin, int lane, int batch) const {
    if (lane >= batch || begin + lane >= n) return {kNone, 0};
    const float2 part = running[slot_of(begin + lane)];
    return {part.x, part.y};
  }
  // Values of chunks begin + first, begin + first + 1, ... of the batch that starts at `begin`.
  __device__ __forceinline__ void load(int begin, int first, int batch,
                                       float (&to)[kMostMergeBatch][merge_dims(D)]) const {
#pragma unroll
    for (int u = 0; u < kMergeTogether; ++u) {
      if (first + u >= batch || begin + first + u >= n) continue;
      const float* from = values + static_cast<size_t>(slot_of(begin + first + u)) * D;
      if constexpr (merge_dims(D) == 2) {
        const float2 pair = *reinterpret_cast<const float2*>(from);
        to[first + u][0] = pair.x, to[first + u][1] = pair.y;
      } else {
        to[first + u][0] = *from;
      }
    }
  }
};
template <int D>
__device__ __forceinline__ PartialResults<D> partial_of(const AttentionArguments& a, int i,
                                                        int head, int thread) {
  // Loads of the row's keys and of its prefix do not wait for each other.
  const StepRow& row = a.rows[i];
  const bool prefix = row.prefix != 0;
  static_assert(offsetof(StepRow, first) % 16 == 0 &&
                offsetof(StepRow, length) == offsetof(StepRow, first) + 12);
  const uint4 keys = *reinterpret_cast<const uint4*>(&row.first);
  const int first = static_cast<int>(a.windowed ? keys.y : keys.x) / kChunk;
  const int length = static_cast<int>(keys.w);
  const int prefix_slots = (a.prefix_length + kChunk - 1) / kChunk;
  PartialResults<D> p;
  p.prefix_chunks = prefix ? prefix_slots : 0;
  p.skipped = prefix_slots - p.prefix_chunks + first;
  p.n = p.prefix_chunks + (length - 1) / kChunk - first + 1;
  const size_t lines = static_cast<size_t>(a.n_rows) * static_cast<size_t>(a.heads);
  const size_t slots = static_cast<size_t>(a.slots);
  const size_t line = static_cast<size_t>(i) * a.heads + static_cast<size_t>(head);
  p.running = reinterpret_cast<const float2*>(a.partial) + line * slots;
  p.values = a.partial + 2 * lines * slots + line * slots * D +
             static_cast<size_t>(thread * merge_dims(D));
  return p;
}

// What a chunk does to sums: x keep + value add, of which a side that is empty is left out, as
// merged() does; l keep + z. So that one product and one sum are in order, what is left out is
// added as -0, which changes nothing, not even the sign of a zero.
__device__ __forceinline__ float4 link_of(const Running& before, const Running& part) {
  const cpu::Merge m = merge(before, part);
  return make_float4(m.keep, m.add, m.add == 0.0f ? -0.0f : part.l * m.add, 0);
}

// Link of this lane's chunk; then `before` is that of all chunks so far. Maxima by a scan: of
// numbers, in any order.
__device__ __forceinline__ float4 next_link(Running& before, const Running& part, int lane) {
  const unsigned there = __ballot_sync(kAllLanes, !is_empty(part));
  float top = part.m;  // of this lane's chunk and those before it
#pragma unroll
  for (unsigned by = 1; by < 32; by *= 2) top = fmaxf(top, __shfl_up_sync(kAllLanes, top, by));
  const float of_earlier = __shfl_up_sync(kAllLanes, top, 1u);
  Running earlier = before;
  if (lane > 0) earlier.m = fmaxf(before.m, of_earlier);
  if ((there & ((1u << lane) - 1u)) != 0) earlier.l = 1;
  before.m = fmaxf(before.m, __shfl_sync(kAllLanes, top, kWarp - 1));
  if (there != 0) before.l = 1;
  return link_of(earlier, part);
}

// A warp is 64 dimensions (32 of small heads) of one row and head: chunks in order, prefix first.
// Maxima do not depend on anything that is rounded, so the factors of a batch of chunks are found
// at once, each by a lane; what is left in order are a product and a sum a chunk. Warps have
// nothing in common: each finds the factors for itself.
// `thread`: of merge_threads(D) that have the head; `links`: kMostMergeBatch of this warp, in
// shared memory.
template <int D>
__device__ __forceinline__ void merge_head(const AttentionArguments& a, int batch, int i, int head,
                                           int thread, float4* links) {
  constexpr int kDims = merge_dims(D);
  const int lane = thread % kWarp;
  const PartialResults<D> partial = partial_of<D>(a, i, head, thread);
  const int n = partial.n;

  // Values do not wait for factors: a batch's are under way while those of the batch before it are
  // used.
  float value[kMostMergeBatch][kDims] = {};
  Running part = partial.running_of(0, lane, batch);
#pragma unroll
  for (int first = 0; first < kMostMergeBatch; first += kMergeTogether)
    if (first < min(batch, n)) partial.load(0, first, batch, value);
  Running before = {kNone, 0};  // only its maximum and whether it is empty count
  float l = -0.0f, x[kDims];
#pragma unroll
  for (int j = 0; j < kDims; ++j) x[j] = -0.0f;
  for (int begin = 0;; begin += batch) {
    const int count = min(batch, n - begin);
    const Running next = partial.running_of(begin + batch, lane, batch);
    links[lane] = next_link(before, part, lane);
    __syncwarp();
#pragma unroll
    for (int first = 0; first < kMostMergeBatch; first += kMergeTogether) {
      if (first >= count) break;
      // Chunks after the last one are empty.
      float4 link[kMergeTogether];
#pragma unroll
      for (int u = 0; u < kMergeTogether; ++u) link[u] = links[first + u];
#pragma unroll
      for (int u = 0; u < kMergeTogether; ++u) {
#pragma unroll
        for (int j = 0; j < kDims; ++j) {
          const float plus = link[u].y == 0.0f ? -0.0f : value[first + u][j] * link[u].y;
          x[j] = x[j] * link[u].x + plus;
        }
        l = l * link[u].x + link[u].z;
      }
      if (begin + batch < n) partial.load(begin + batch, first, batch, value);
    }
    if (begin + batch >= n) break;
    __syncwarp();  // before the next batch takes their places
    part = next;
  }

  const int dim = thread * kDims;
  if (dim >= a.head_dim) return;
  auto* to = static_cast<uint16_t*>(a.out) +
             static_cast<size_t>(i) * static_cast<size_t>(a.out_stride) +
             static_cast<size_t>(head * a.head_dim + dim);
  if constexpr (kDims == 2)  // head_dim is even
    *reinterpret_cast<uint32_t*>(to) = pack_bf16(x[0] / l, x[1] / l);
  else
    *to = float_to_bf16(x[0] / l);
}

}  // namespace evalrun::engine::cuda
