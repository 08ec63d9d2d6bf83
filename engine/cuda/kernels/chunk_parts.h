// Chunks of keys for tiles of queries: all of a kernel but its name, and the phase of all_layers
// (all_layers.cu). T is what the cache holds (attention_parts.h). What chunks leave is merged in
// merge_parts.h.
#pragma once
#include <algorithm>

#include "engine/cuda/kernels/attention_parts.h"

namespace evalrun::engine::cuda {

constexpr int kChunkWarps = kChunk / kSegment;
constexpr int kChunkThreads = kChunkWarps * kWarp;
// Of values in shared memory: what a quarter of a warp stores at once is in different banks.
EVALRUN_DEVICE constexpr int value_stride(int d) { return d + 4; }

// Where one key head's keys and values of an item lie.
template <typename T>
struct Source {
  const T *k, *v;            // the cache, or the prefix bank
  const T *k_rows, *v_rows;  // rows of the request
  size_t capacity;
};
template <int D, typename T>
__device__ __forceinline__ Source<T> source_of(const AttentionArguments& a,
                                               const AttentionItem& item, int kv_head) {
  constexpr size_t kLine = D + (kHasScales<T> ? sizeof(float) : 0);  // of T
  const bool prefix = item.kind == AttentionItem::kPrefix;
  int head = item.sequence * a.kv_heads + kv_head;
  if (prefix)
    head = item.only_head < 0 ? kv_head : kv_head * (a.heads / a.kv_heads) + item.only_head;
  Source<T> s;
  s.capacity = static_cast<size_t>(prefix ? a.prefix.capacity : a.cache.capacity);
  const size_t at = static_cast<size_t>(head) * s.capacity * kLine;
  s.k = static_cast<const T*>(prefix ? a.prefix.k : a.cache.k) + at;
  s.v = static_cast<const T*>(prefix ? a.prefix.v : a.cache.v) + at;
  const size_t rows = static_cast<size_t>(kv_head) * static_cast<size_t>(a.step.capacity) * kLine;
  s.k_rows = static_cast<const T*>(a.step.k) + rows;
  s.v_rows = static_cast<const T*>(a.step.v) + rows;
  return s;
}

// A segment's keys [base, end): those below `limit` come from the cache, the others are rows of the
// request. `row`: of this lane's key of score tile i; of the nearest one that is a row where that
// key is none.
struct SegmentKeys {
  int base, end, limit;
  int row[4];
  int own;  // row of key base + lane, or of the nearest one that is a row
  __device__ __forceinline__ bool any_cached() const { return base < limit; }
  __device__ __forceinline__ bool any_rows() const { return end > limit; }
};
__device__ __forceinline__ SegmentKeys keys_of(const AttentionArguments& a,
                                               const AttentionItem& item, int base, int lane) {
  SegmentKeys keys = {base, min(base + kSegment, item.length), item.limit, {0, 0, 0, 0}, 0};
  if (keys.any_rows()) {
    const int oldest = max(base, item.limit), last = keys.end - 1;
    keys.own = a.visible[item.visible + min(max(base + lane, oldest), last) - item.limit];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      keys.row[i] = __shfl_sync(kAllLanes, keys.own,
                                min(max(key_of_tile(base, lane / 4, i), oldest), last) - base);
  }
  return keys;
}

// Scales of the key base + lane and of its value; those of another key where there is none.
template <int D, typename T>
__device__ __forceinline__ float2 scales_of(const AttentionArguments& a, const Source<T>& s,
                                            const SegmentKeys& keys, int lane) {
  const int key = min(keys.base + lane, keys.end - 1);
  const bool cached = key < keys.limit;
  const size_t capacity = cached ? s.capacity : static_cast<size_t>(a.step.capacity);
  const size_t at = byte_scale_at(0, capacity, static_cast<size_t>(cached ? key : keys.own), D);
  return make_float2(*reinterpret_cast<const float*>((cached ? s.k : s.k_rows) + at),
                     *reinterpret_cast<const float*>((cached ? s.v : s.v_rows) + at));
}

// A segment's values, 32 dimensions at a time. Column c of tile d of the dimensions from 32 b on is
// dimension 32 b + 8 (c / 2) + 2 d + c % 2, so that a lane's results are eight in a row. In the
// cache values lie by dimension: a load is eight keys of one column, the operand as it is. Rows of
// the request have them by row: a load is eight dimensions of one key, and word d of four such
// loads, transposed, is the operand of tile d.
template <int D, typename T>
struct SegmentValues {
  static constexpr int kGroups = D / 32;
  static constexpr int kAhead = kGroups < 2 ? kGroups : 2;  // groups whose loads come first
  const T* cached;  // column g of the first tile, keys 8 t .. 8 t + 7
  size_t capacity;
  const T* row[4];  // dimensions 8 t .. 8 t + 7
  uint32_t is_cached[4], is_row[4];
  Eight<T> ahead[kAhead][4];  // cached values where there are any, else of rows

  __device__ __forceinline__ void load_cached(int group, Eight<T> (&to)[4]) const {
    const T* from = cached + static_cast<size_t>(32 * group) * capacity;
#pragma unroll
    for (int d = 0; d < 4; ++d, from += 2 * capacity)
      to[d] = *reinterpret_cast<const Eight<T>*>(from);
  }
  __device__ __forceinline__ void load_rows(int group, Eight<T> (&to)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = *reinterpret_cast<const Eight<T>*>(row[i] + 32 * group);
  }
  __device__ __forceinline__ void load_ahead(int first, bool any_cached) {
    if (any_cached) {
#pragma unroll
      for (int b = 0; b < kAhead; ++b) load_cached(first + b, ahead[b]);
    } else {
#pragma unroll
      for (int b = 0; b < kAhead; ++b) load_rows(first + b, ahead[b]);
    }
  }
};
template <int D, typename T>
__device__ __forceinline__ SegmentValues<D, T> values_of(const Source<T>& s,
                                                         const SegmentKeys& keys, int g, int t) {
  SegmentValues<D, T> v;
  const int cached_end = min(keys.limit, keys.end);
  // Lanes whose keys are not cached load again what others do.
  v.cached = s.v + static_cast<size_t>(8 * (g / 2) + g % 2) * s.capacity +
             min(keys.base + 8 * t, max(cached_end - 1, 0) / 8 * 8);
  v.capacity = s.capacity;
  const T* rows = keys.any_rows() ? s.v_rows : s.v;  // there may be none
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v.row[i] = rows + static_cast<size_t>(keys.row[i]) * D + 8 * t;
    const int mine = key_of_tile(keys.base, g, i), pair = keys.base + 8 * t + 2 * i;
    v.is_row[i] = mine >= keys.limit && mine < keys.end ? 0xffffffffu : 0u;
    v.is_cached[i] =
        (pair < cached_end ? 0xffffu : 0u) | (pair + 1 < cached_end ? 0xffff0000u : 0u);
  }
  return v;
}

// Words i of the operand for the tiles d of a group; keys that do not exist count as zero.
// `loaded` ahead.
template <bool kCached, bool kRows, int D, typename T>
__device__ __forceinline__ void operand_of(const SegmentValues<D, T>& v, int group,
                                           const Eight<T> (&loaded)[4], uint32_t (&words)[4][4]) {
  Eight<T> late[4] = {};
  if constexpr (kCached && kRows) v.load_rows(group, late);
  [[maybe_unused]] const Eight<T>* rows = kCached ? late : loaded;
#pragma unroll
  for (int d = 0; d < 4; ++d)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[d][i] = 0;
      if constexpr (kRows)
        words[d][i] = transpose_8x8(word_of(as_bf16<T>(rows[i]), d) & v.is_row[i]);
      if constexpr (kCached) words[d][i] |= word_of(as_bf16<T>(loaded[d]), i) & v.is_cached[i];
    }
}

// Values weighted by `p`, of the tile's queries, to [query][stride] in shared memory.
template <bool kCached, bool kRows, int D, typename T>
__device__ __forceinline__ void mix_segment(SegmentValues<D, T>& v, int queries, int g, int t,
                                            const uint32_t (&p)[2][4], float* to) {
  constexpr int kAhead = SegmentValues<D, T>::kAhead;
#pragma unroll
  for (int first = 0; first < SegmentValues<D, T>::kGroups; first += kAhead) {
    if (first > 0) v.load_ahead(first, kCached);
#pragma unroll
    for (int b = 0; b < kAhead; ++b) {
      uint32_t words[4][4];
      operand_of<kCached, kRows>(v, first + b, v.ahead[b], words);
      float x[4][4] = {};
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        mma_bf16(x[d], p[0], words[d][0], words[d][1]);
        mma_bf16(x[d], p[1], words[d][2], words[d][3]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (g + 8 * h >= queries) continue;
        auto* line = reinterpret_cast<float4*>(to + (g + 8 * h) * value_stride(D) +
                                               32 * (first + b) + 8 * t);
        line[0] = make_float4(x[0][2 * h], x[0][2 * h + 1], x[1][2 * h], x[1][2 * h + 1]);
        line[1] = make_float4(x[2][2 * h], x[2][2 * h + 1], x[3][2 * h], x[3][2 * h + 1]);
      }
    }
  }
}

// One segment of an item, by a warp: its weighted values, and of queries g and g + 8 what they are
// relative to. It has keys.
template <int D, typename T>
__device__ __forceinline__ void attend_segment(const AttentionArguments& a,
                                               const AttentionItem& item, int kv_head, int base,
                                               float* values, Running (&part)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  // Loads that the item is enough for come before those that wait for the rows' numbers.
  Queries<D> q = load_queries<D>(a, item.row, item.q0, item.queries, kv_head, g, t);
  if (item.kind == AttentionItem::kPrefix)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      q.first[h] = 0, q.length[h] = g + 8 * h < item.queries ? item.length : 0;
  const Source<T> s = source_of<D, T>(a, item, kv_head);
  const SegmentKeys keys = keys_of(a, item, base, lane);
  [[maybe_unused]] float2 scales;
  if constexpr (kHasScales<T>) scales = scales_of<D>(a, s, keys, lane);
  const auto line = [&](int i) {
    const int key = min(key_of_tile(base, g, i), keys.end - 1);
    return key < keys.limit ? s.k + static_cast<size_t>(key) * D
                            : s.k_rows + static_cast<size_t>(keys.row[i]) * D;
  };
  float score[4][4] = {};
  score_segment<D, T, D == 256 ? 2 : 4>(
      line, t, [&](int b, int half) { return q.q[b][half]; }, score);
  // Under way while the exponentials are found.
  SegmentValues<D, T> v = values_of<D>(s, keys, g, t);
  v.load_ahead(0, keys.any_cached());
  if constexpr (kHasScales<T>) scale_scores(scales.x, t, score);
  uint32_t p[2][4];
  exponentials(score, base, t, q.first, q.length, 1.0f / sqrtf(static_cast<float>(a.head_dim)),
               item.queries > 8 ? 2 : 1, p, part);
  if constexpr (kHasScales<T>) scale_probabilities(scales.y, t, p);
  if (!keys.any_rows())
    mix_segment<true, false>(v, item.queries, g, t, p, values);
  else if (keys.any_cached())
    mix_segment<true, true>(v, item.queries, g, t, p, values);
  else
    mix_segment<false, true>(v, item.queries, g, t, p, values);
}

// What the warps of a block leave each other.
template <int D>
struct Shared {
  static constexpr int kStride = value_stride(D);
  float* values;     // [segment][query][stride]
  Running* running;  // [segment][query]
  Factors* factors;  // [segment][query]
  size_t* place;     // [query] of its partial result
};
template <int D>
__device__ __forceinline__ Shared<D> shared_of(unsigned char* shared) {
  Shared<D> s;
  s.values = reinterpret_cast<float*>(shared);
  s.running = reinterpret_cast<Running*>(s.values + kChunkWarps * kQueries * Shared<D>::kStride);
  s.factors = reinterpret_cast<Factors*>(s.running + kChunkWarps * kQueries);
  s.place = reinterpret_cast<size_t*>(s.factors + kChunkWarps * kQueries);
  return s;
}
EVALRUN_DEVICE constexpr size_t chunk_shared_bytes(int d) {
  return static_cast<size_t>(kChunkWarps) * kQueries *
             (static_cast<size_t>(value_stride(d)) * sizeof(float) + sizeof(Running) +
              sizeof(Factors)) +
         kQueries * sizeof(size_t);
}

__device__ __forceinline__ bool has_keys(const AttentionItem& item, int base) {
  return base < item.length && base + kSegment > item.first;
}

// Segments in order, to the item's partial result.
template <int D>
__device__ __forceinline__ void merge_segments(const AttentionArguments& a,
                                               const AttentionItem& item, const Shared<D>& s,
                                               int thread) {
  // Factors first, of all segments at once; then every value takes them.
  if (const int w = thread / kQueries, slot = thread % kQueries;
      w < kChunkWarps && slot < item.queries) {
    Running before = {kNone, 0};
#pragma unroll
    for (int earlier = 0; earlier < kChunkWarps - 1; ++earlier)
      if (earlier < w) before = largest(before, s.running[earlier * kQueries + slot]);
    const cpu::Merge m = merge(before, s.running[w * kQueries + slot]);
    s.factors[w * kQueries + slot] = {m.keep, m.add};
  }
  __syncthreads();
  if (const int slot = thread - (kChunkThreads - kQueries); slot >= 0 && slot < item.queries) {
    Running all = {kNone, 0};
    float l = 0;
#pragma unroll
    for (int w = 0; w < kChunkWarps; ++w) {
      const Running part = s.running[w * kQueries + slot];
      all = largest(all, part);
      l = merged(s.factors[w * kQueries + slot], l, part.l);
    }
    *reinterpret_cast<float2*>(a.partial + 2 * s.place[slot]) = make_float2(all.m, l);
  }
  // Slots are a multiple of eight, so that this is aligned.
  float* to = a.partial + 2 * static_cast<size_t>(a.n_rows) * static_cast<size_t>(a.heads) *
                              static_cast<size_t>(a.slots);
  for (int i = thread; i < item.queries * (D / 4); i += kChunkThreads) {
    const int slot = i / (D / 4), d = i % (D / 4) * 4;
    Factors f[kChunkWarps];
    float4 part[kChunkWarps];
#pragma unroll
    for (int w = 0; w < kChunkWarps; ++w) {
      f[w] = s.factors[w * kQueries + slot];
      // A segment without keys left none.
      part[w] = make_float4(0, 0, 0, 0);
      if (has_keys(item, item.chunk * kChunk + w * kSegment))
        part[w] = *reinterpret_cast<const float4*>(s.values +
                                                   (w * kQueries + slot) * Shared<D>::kStride + d);
    }
    float4 x = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kChunkWarps; ++w) {
      x.x = merged(f[w], x.x, part[w].x), x.y = merged(f[w], x.y, part[w].y);
      x.z = merged(f[w], x.z, part[w].z), x.w = merged(f[w], x.w, part[w].w);
    }
    *reinterpret_cast<float4*>(to + s.place[slot] * D + static_cast<size_t>(d)) = x;
  }
}

// One item for one key head, by kChunkThreads threads that are whole warps, all of which come here:
// a warp is a segment. `shared`: chunk_shared_bytes(D). Of an item without queries nothing is done
// but the barriers.
template <int D, typename T>
__device__ __forceinline__ void attend_item(const AttentionArguments& a, const AttentionItem& item,
                                            int kv_head, int thread, unsigned char* shared) {
  const int warp = thread / kWarp, lane = thread % kWarp;
  const Shared<D> s = shared_of<D>(shared);
  const int base = item.chunk * kChunk + warp * kSegment;
  Running mine[2] = {{kNone, 0}, {kNone, 0}};
  if (has_keys(item, base))
    attend_segment<D, T>(a, item, kv_head, base, s.values + warp * kQueries * Shared<D>::kStride,
                         mine);
  if (lane % 4 == 0) {
    s.running[warp * kQueries + lane / 4] = mine[0];
    s.running[warp * kQueries + lane / 4 + 8] = mine[1];
  }
  if (const int slot = thread - (kChunkThreads - kQueries); slot >= 0 && slot < item.queries) {
    const int group = a.heads / a.kv_heads, number = item.q0 + slot;
    const int row = item.row + number / group, head = kv_head * group + number % group;
    s.place[slot] =
        (static_cast<size_t>(row) * static_cast<size_t>(a.heads) + static_cast<size_t>(head)) *
            static_cast<size_t>(a.slots) +
        static_cast<size_t>(item.slot);
  }
  __syncthreads();
  merge_segments(a, item, s, thread);
}

// Of a kernel whose thread block is one item for one key head. Heads first in the grid's order, so
// that blocks behind the list's end come last.
template <int D, typename T>
__device__ __forceinline__ void attend_item_of_block(const AttentionArguments& a) {
  const AttentionItem item = a.items[blockIdx.z * gridDim.y + blockIdx.y];
  if (item.queries == 0) return;
  attend_item<D, T>(a, item, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x),
                    evalrun_shared_memory());
}

// Items that do not fit the grid's y, which is 65,535 at most, go on in its z.
constexpr int kMostY = 32768;

inline void launch_chunks(const char* name, void (*kernel)(AttentionArguments), int d,
                          const AttentionArguments& a, cudaStream_t stream) {
  const int y = std::min(a.max_items, kMostY);
  check_argument(a.max_items % y == 0, "a list of items whose length is no power of two");
  launch(name, kernel,
         dim3(static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(y),
              static_cast<unsigned>(a.max_items / y)),
         kChunkThreads, chunk_shared_bytes(d), stream, a);
}
inline void allow_shared_memory(void (*kernel)(AttentionArguments), int d) {
  EVALRUN_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(chunk_shared_bytes(d))));
}

}  // namespace evalrun::engine::cuda
