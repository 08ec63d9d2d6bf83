// One file: both ways through a context, by chunks and at once, must have the same bits, so they
// share the steps they are made of.
#include <cstddef>
#include <type_traits>

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kWarps = kChunk / kSegment;
constexpr int kThreads = kWarps * kWarp;
constexpr int kPromptWarps = 2;  // few, so that blocks fill what registers there are
constexpr int kPromptThreads = kPromptWarps * kWarp;
// Dimensions of values that one of its warps takes.
constexpr int prompt_values(int d) { return d < 128 ? d : 128; }
constexpr int kAhead = 8;  // of them whose values are under way
// Of values in shared memory: rows g of a fragment in different banks.
EVALRUN_DEVICE constexpr int value_stride(int d) { return d + 8; }
// No number: what a maximum is before the first key. Below every score, and its differences are
// numbers.
constexpr float kNone = -3.0e38f;

// Running softmax over parts: as cpu::merge_chunk, but a part may be empty.
struct Running {
  float m, l;
};
__device__ __forceinline__ bool is_empty(const Running& r) { return r.l == 0.0f && r.m == kNone; }
// What the values before a part and its own are multiplied with.
struct Factors {
  float keep, add;
};
// Factors for the old and the new weighted values.
__device__ __forceinline__ cpu::Merge merge(const Running& old, const Running& part) {
  if (is_empty(part)) return {old.m, old.l, 1.0f, 0.0f};
  if (is_empty(old)) return {part.m, part.l, 0.0f, 1.0f};
  return cpu::merge_chunk(old.m, old.l, part.m, part.l);
}
// An empty side has no values: its zeros are left out, so that nothing is rounded twice.
__device__ __forceinline__ float merged(const Factors& f, float old, float part) {
  if (f.add == 0.0f) return old * f.keep;
  if (f.keep == 0.0f) return part * f.add;
  return old * f.keep + part * f.add;
}

// The maximum of both, and whether there is any key: all that factors depend on.
__device__ __forceinline__ Running largest(const Running& old, const Running& part) {
  if (is_empty(part)) return old;
  if (is_empty(old)) return part;
  return {old.m > part.m ? old.m : part.m, 1};
}

__device__ __forceinline__ float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
  x = x + __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// Where one key head's keys and values of an item lie.
struct Source {
  const uint16_t *k, *v;            // by position: the cache, or the prefix bank
  const uint16_t *k_rows, *v_rows;  // rows of the request
  const int32_t* visible;           // of the row, kOwn
  int capacity;
  int cached;  // keys below come from k, v
  int length;  // keys from here on do not exist
};

// Where the words of key j lie; the first ones there are when there is no such key.
template <int D>
__device__ __forceinline__ const uint16_t* key_line(const Source& s, int j) {
  if (j >= s.length) return s.k;
  if (j < s.cached) return s.k + static_cast<size_t>(j) * D;
  return s.k_rows + static_cast<size_t>(s.visible[j - s.cached]) * D;
}

struct Fragment {
  uint32_t word[4];  // as A of mma_bf16
};

// Scores of a segment's keys from `base` on: score[i] is D of mma_bf16 for score tile i. q(b, half)
// are the queries at inputs 32 b + 16 half ... Loads of kTogether tiles are under way at once.
template <int D, int kTogether, typename Q>
__device__ __forceinline__ void score_segment(const Source& s, int base, int g, int t, const Q& q,
                                              float (&score)[4][4]) {
  constexpr int kBlocks = D / 32;
#pragma unroll
  for (int first = 0; first < 4; first += kTogether) {
    uint4 k[kTogether][kBlocks];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int key = base + 8 * (g / 2) + 2 * (first + i) + g % 2;
      const uint16_t* line = key_line<D>(s, key);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
        k[i][b] = key < s.length ? *reinterpret_cast<const uint4*>(line + 32 * b + 8 * t)
                                 : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        mma_bf16(score[first + i], q(b, 0).word, k[i][b].x, k[i][b].y);
        mma_bf16(score[first + i], q(b, 1).word, k[i][b].z, k[i][b].w);
      }
  }
}

// Values of a segment weighted by `p`: take(d, x) gets D of mma_bf16 for dimensions 8 d ... kRows:
// some of them may be those of rows of the request.
template <int D, bool kRows, typename Take>
__device__ __forceinline__ void mix_segment(const Source& s, int base, int g, int t,
                                            const uint32_t (&p)[2][4], const Take& take) {
  constexpr int kTiles = D / 8, kTogether = 4;
  if (!kRows || base + kSegment <= min(s.cached, s.length)) {
    // All in the cache: whole words, of which the cache has all; keys that are none count as zero.
    uint32_t there[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = base + 8 * t + 2 * i;
      there[i] = (key < s.length ? 0xffffu : 0u) | (key + 1 < s.length ? 0xffff0000u : 0u);
    }
    const uint16_t* from =
        s.v + static_cast<size_t>(g) * static_cast<size_t>(s.capacity) + (base + 8 * t);
    const size_t step = 8 * static_cast<size_t>(s.capacity);
#pragma unroll
    for (int first = 0; first < kTiles; first += kTogether) {
      uint4 v[kTogether];
#pragma unroll
      for (int d = 0; d < kTogether; ++d, from += step)
        v[d] = *reinterpret_cast<const uint4*>(from);
#pragma unroll
      for (int d = 0; d < kTogether; ++d) {
        float x[4] = {};
        mma_bf16(x, p[0], v[d].x & there[0], v[d].y & there[1]);
        mma_bf16(x, p[1], v[d].z & there[2], v[d].w & there[3]);
        take(first + d, x);
      }
    }
    return;
  }
  // Value by value. A key that does not exist is replaced by one that does, which then counts as
  // zero.
  const uint16_t* at[8];
  int step[8];
  uint32_t there = 0;  // bits
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const int key = base + 8 * t + e;
    at[e] = s.v, step[e] = 0;
    if (key >= s.length) continue;
    there |= 1u << e;
    if (key < s.cached) {
      at[e] = s.v + static_cast<size_t>(g) * static_cast<size_t>(s.capacity) + key;
      step[e] = 8 * s.capacity;
    } else {
      at[e] = s.v_rows + static_cast<size_t>(s.visible[key - s.cached]) * D + g;
      step[e] = 8;
    }
  }
#pragma unroll
  for (int d = 0; d < kTiles; ++d) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = *at[2 * i], high = *at[2 * i + 1];
      at[2 * i] += step[2 * i], at[2 * i + 1] += step[2 * i + 1];
      words[i] = ((there >> (2 * i) & 1u) != 0 ? low : 0u) |
                 ((there >> (2 * i + 1) & 1u) != 0 ? high << 16 : 0u);
    }
    float x[4] = {};
    mma_bf16(x, p[0], words[0], words[1]);
    mma_bf16(x, p[1], words[2], words[3]);
    take(d, x);
  }
}

// Queries g and g + 8 of a tile: their rows, heads and the keys [first, length) they see; none
// where the tile has fewer.
template <int D>
struct Queries {
  int first[2], length[2];
  Fragment q[D / 32][2];
};
template <int D>
__device__ __forceinline__ Queries<D> load_queries(const AttentionArguments& a, int row, int q0,
                                                   int queries, int kv_head, int g, int t) {
  Queries<D> r;
  const int group = a.heads / a.kv_heads;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int slot = g + 8 * h, number = q0 + slot;
    const bool used = slot < queries;
    const int query_row = row + number / group, head = kv_head * group + number % group;
    r.first[h] = r.length[h] = 0;
    if (used) {
      static_assert(offsetof(StepRow, first) % 16 == 0 &&
                    offsetof(StepRow, length) == offsetof(StepRow, first) + 12);
      const uint4 keys = *reinterpret_cast<const uint4*>(&a.rows[query_row].first);
      r.first[h] = static_cast<int>(a.windowed ? keys.y : keys.x);
      r.length[h] = static_cast<int>(keys.w);
    }
#pragma unroll
    for (int b = 0; b < D / 32; ++b) {
      uint4 words = make_uint4(0, 0, 0, 0);
      if (used)
        words = *reinterpret_cast<const uint4*>(
            static_cast<const uint16_t*>(a.q) +
            (static_cast<size_t>(query_row) * a.heads + head) * D + 32 * b + 8 * t);
      r.q[b][0].word[h] = words.x, r.q[b][0].word[2 + h] = words.y;
      r.q[b][1].word[h] = words.z, r.q[b][1].word[2 + h] = words.w;
    }
  }
  return r;
}

// Probabilities of a segment, of the keys that are seen, relative to the largest score: as A of two
// steps of 16 keys, rounded to bfloat16 before they are summed.
__device__ __forceinline__ void exponentials(float (&score)[4][4], int base, int t,
                                             const int (&first)[2], const int (&length)[2],
                                             float scale, uint32_t (&p)[2][4], Running (&part)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = kNone;
    bool seen[4][2];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = base + 8 * t + 2 * i + e;
        seen[i][e] = key >= first[h] && key < length[h];
        float& x = score[i][2 * h + e];
        x = x * scale;
        if (seen[i][e]) top = fmaxf(top, x);  // of numbers; the sum below keeps what is none
      }
    top = max_of_quad(top);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float x = seen[i][e] ? cpu::exp_fixed(score[i][2 * h + e] - top) : 0.0f;
        pair[e] = bf16_to_float(float_to_bf16(x));
        sum = sum + pair[e];
      }
      p[i / 2][i % 2 * 2 + h] = pack_bf16(pair[0], pair[1]);
    }
    part[h] = {top, sum_of_quad(sum)};
  }
}

// A thread block is one chunk for a tile of queries, a warp one segment. Register layouts are those
// of mma_bf16: this lane holds queries g and g + 8. Of a segment's 32 keys it holds 8 t .. 8 t + 7:
// column c of score tile i is key 8 (c / 2) + 2 i + c % 2, so that the scores are, as they lie, the
// operand of the product with the values.
template <int D>
__global__ void __launch_bounds__(kThreads, D == 256   ? 2
                                            : D == 128 ? 3
                                                       : 4) attend_chunk(AttentionArguments a) {
  wait_for_previous();
  const int index = static_cast<int>(blockIdx.x);
  if (index >= (a.windowed ? a.header->n_items_windowed : a.header->n_items)) return;
  const AttentionItem item = a.items[index];
  const int kv_head = static_cast<int>(blockIdx.y), group = a.heads / a.kv_heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;

  const StepRow& row = a.rows[item.row];
  Source s = {};
  if (item.kind == AttentionItem::kPrefix) {
    const int head = item.only_head < 0 ? kv_head : kv_head * group + item.only_head;
    const size_t size = static_cast<size_t>(a.prefix.capacity) * D;
    s.k = static_cast<const uint16_t*>(a.prefix.k) + static_cast<size_t>(head) * size;
    s.v = static_cast<const uint16_t*>(a.prefix.v) + static_cast<size_t>(head) * size;
    s.capacity = a.prefix.capacity;
    s.cached = s.length = item.limit;
  } else {
    const size_t size = static_cast<size_t>(a.cache.capacity) * D;
    const size_t head = static_cast<size_t>(row.sequence * a.kv_heads + kv_head);
    s.k = static_cast<const uint16_t*>(a.cache.k) + head * size;
    s.v = static_cast<const uint16_t*>(a.cache.v) + head * size;
    s.capacity = a.cache.capacity;
    s.cached = item.limit;
    s.length = item.kind == AttentionItem::kOwn ? row.length : item.limit;
    const size_t rows = static_cast<size_t>(a.step.capacity) * D;
    s.k_rows = static_cast<const uint16_t*>(a.step.k) + static_cast<size_t>(kv_head) * rows;
    s.v_rows = static_cast<const uint16_t*>(a.step.v) + static_cast<size_t>(kv_head) * rows;
    s.visible = a.visible + row.visible;
  }

  Queries<D> q = load_queries<D>(a, item.row, item.q0, item.queries, kv_head, g, t);
  if (item.kind == AttentionItem::kPrefix)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      q.first[h] = 0, q.length[h] = g + 8 * h < item.queries ? s.length : 0;

  const int base = item.chunk * kChunk + warp * kSegment;
  float score[4][4] = {};
  score_segment<D, D == 256 ? 1 : 2>(
      s, base, g, t, [&](int b, int half) { return q.q[b][half]; }, score);
  Running mine[2];
  uint32_t p[2][4];
  exponentials(score, base, t, q.first, q.length, 1.0f / sqrtf(static_cast<float>(a.head_dim)), p,
               mine);

  // Segments in order. Factors first, by one thread a query; then every value takes them.
  constexpr int kStride = value_stride(D);
  auto* shared = reinterpret_cast<float*>(evalrun_shared_memory());
  float* values = shared;  // [segment][query][stride]
  auto* running = reinterpret_cast<Running*>(shared + kWarps * kQueries * kStride);
  auto* factors = reinterpret_cast<Factors*>(running + kWarps * kQueries);  // both [segment][query]
  mix_segment<D, true>(s, base, g, t, p, [&](int d, const float(&x)[4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      *reinterpret_cast<float2*>(values + (warp * kQueries + g + 8 * h) * kStride + 8 * d + 2 * t) =
          make_float2(x[2 * h], x[2 * h + 1]);
  });
  if (t == 0) {
    running[warp * kQueries + g] = mine[0];
    running[warp * kQueries + g + 8] = mine[1];
  }
  __syncthreads();
  const size_t all =
      static_cast<size_t>(a.n_rows) * static_cast<size_t>(a.heads) * static_cast<size_t>(a.slots);
  const auto place_of = [&](int slot) {
    const int number = item.q0 + slot;
    return (static_cast<size_t>(item.row + number / group) * a.heads +
            static_cast<size_t>(kv_head * group + number % group)) *
               static_cast<size_t>(a.slots) +
           static_cast<size_t>(item.slot);
  };
  if (const int slot = static_cast<int>(threadIdx.x); slot < item.queries) {
    Running sum = {kNone, 0};
    for (int w = 0; w < kWarps; ++w) {
      const cpu::Merge m = merge(sum, running[w * kQueries + slot]);
      factors[w * kQueries + slot] = {m.keep, m.add};
      sum = {m.m, m.l};
    }
    const size_t to = place_of(slot);
    *reinterpret_cast<float2*>(a.partial + 2 * to) = make_float2(sum.m, sum.l);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < item.queries * D; i += kThreads) {
    const int slot = i / D, d = i % D;
    float x = 0;
    for (int w = 0; w < kWarps; ++w)
      x = merged(factors[w * kQueries + slot], x, values[(w * kQueries + slot) * kStride + d]);
    a.partial[2 * all + place_of(slot) * D + static_cast<size_t>(d)] = x;
  }
}

// A thread block is one row and head, a thread a dimension: chunks in order, prefix first. Maxima
// do not depend on anything that is rounded, so the factors of many chunks are found at once; what
// is left in order are two products and a sum a chunk.
__global__ void merge_chunks(AttentionArguments a) {
  wait_for_previous();
  auto* parts = reinterpret_cast<Running*>(evalrun_shared_memory());  // [batch]
  auto* factors = reinterpret_cast<Factors*>(parts + a.merge_batch);  // [batch]
  const int i = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const StepRow& row = a.rows[i];
  const int D = a.head_stride, dim = static_cast<int>(threadIdx.x);
  const size_t all =
      static_cast<size_t>(a.n_rows) * static_cast<size_t>(a.heads) * static_cast<size_t>(a.slots);
  const size_t base =
      (static_cast<size_t>(i) * a.heads + static_cast<size_t>(head)) * static_cast<size_t>(a.slots);
  const int prefix_slots = (a.prefix_length + kChunk - 1) / kChunk;
  const int prefix_chunks = row.prefix ? prefix_slots : 0;
  const int first = (a.windowed ? row.first_windowed : row.first) / kChunk;
  const int n = prefix_chunks + (row.length - 1) / kChunk - first + 1;
  const auto place_of = [&](int c) {
    return base +
           static_cast<size_t>(c < prefix_chunks ? c : c - prefix_chunks + prefix_slots + first);
  };
  Running before = {kNone,
                    0};  // of earlier batches; only its maximum and whether it is empty count
  float x = 0, l = 0;
  for (int begin = 0; begin < n; begin += a.merge_batch) {
    const int count = min(a.merge_batch, n - begin);
    for (int c = dim; c < count; c += D) {
      const size_t at = place_of(begin + c);
      const float2 part = *reinterpret_cast<const float2*>(a.partial + 2 * at);
      parts[c] = {part.x, part.y};
    }
    __syncthreads();
    for (int c = dim; c < count; c += D) {
      Running sum = before;
      for (int earlier = 0; earlier < c; ++earlier) sum = largest(sum, parts[earlier]);
      const cpu::Merge m = merge(sum, parts[c]);
      factors[c] = {m.keep, m.add};
    }
    for (int c = 0; c < count; ++c) before = largest(before, parts[c]);
    __syncthreads();
    for (int c0 = 0; c0 < count; c0 += kAhead) {
      float value[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        value[u] = c0 + u < count
                       ? a.partial[2 * all + place_of(begin + c0 + u) * static_cast<size_t>(D) +
                                   static_cast<size_t>(dim)]
                       : 0.0f;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (c0 + u >= count) break;
        x = merged(factors[c0 + u], x, value[u]);
        l = merged(factors[c0 + u], l, parts[c0 + u].l);
      }
    }
    __syncthreads();  // before the next batch takes their places
  }
  if (dim < a.head_dim)
    static_cast<uint16_t*>(a.out)[static_cast<size_t>(i) * static_cast<size_t>(a.out_stride) +
                                  static_cast<size_t>(head * a.head_dim + dim)] =
        float_to_bf16(x / l);
}

// Rows of a prompt: a warp is a tile of queries, and goes from their first key to their last with
// running sums. The same products and sums in the same order as above, without partial results in
// memory: segments into the chunk's sums, in registers; chunks into the row's, which every thread
// keeps for itself in shared memory, as its queries. Warps have nothing in common but the keys they
// read. More than 128 dimensions of values are too many for registers: a grid's z each.
template <int D>
__global__ void __launch_bounds__(kPromptThreads, D >= 128 ? 4 : 6)
    attend_prompt(AttentionArguments a) {
  wait_for_previous();
  constexpr int kValues = prompt_values(D), kTiles = kValues / 8;
  const int kv_head = static_cast<int>(blockIdx.y), group = a.heads / a.kv_heads;
  const int values_from = static_cast<int>(blockIdx.z) * kValues;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const PromptTiles tiles = prompt_tiles_of(a.n_rows, group);
  // Those with most keys first: what is left at the end is short.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kPromptWarps + warp;
  if (tile >= tiles.n) return;
  const int row = tile / tiles.of_rows * tiles.rows, q0 = tile % tiles.of_rows * kQueries;
  const int rows = min(tiles.rows, a.n_rows - row), queries = min(kQueries, rows * group - q0);
  // In order of position: the first row sees the oldest key, the last one the newest.
  const int oldest = a.windowed ? a.rows[row].first_windowed : a.rows[row].first;

  Source s = {};
  const size_t head = static_cast<size_t>(a.rows[row].sequence * a.kv_heads + kv_head) *
                      static_cast<size_t>(a.cache.capacity) * D;
  s.k = static_cast<const uint16_t*>(a.cache.k) + head;
  s.v = static_cast<const uint16_t*>(a.cache.v) + head +
        static_cast<size_t>(values_from) * static_cast<size_t>(a.cache.capacity);
  s.capacity = a.cache.capacity;
  s.cached = s.length = a.rows[row + rows - 1].length;
  constexpr int kKeysTogether = D == 256 ? 1 : D == 128 ? 2 : 4;
  const float scale = 1.0f / sqrtf(static_cast<float>(a.head_dim));

  auto* mine = reinterpret_cast<uint4*>(evalrun_shared_memory()) + threadIdx.x;  // [][thread]
  float* kept = reinterpret_cast<float*>(evalrun_shared_memory()) + D / 16 * 4 * kPromptThreads +
                threadIdx.x;  // [][thread]
  int first[2], length[2];
  {
    const Queries<D> q = load_queries<D>(a, row, q0, queries, kv_head, g, t);
#pragma unroll
    for (int b = 0; b < D / 16; ++b) {
      const Fragment& f = q.q[b / 2][b % 2];
      mine[b * kPromptThreads] = make_uint4(f.word[0], f.word[1], f.word[2], f.word[3]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) first[h] = q.first[h], length[h] = q.length[h];
  }
  const auto query = [&](int b, int half) {
    const uint4 w = mine[(2 * b + half) * kPromptThreads];
    return Fragment{{w.x, w.y, w.z, w.w}};
  };
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) kept[i * kPromptThreads] = 0;
  Running all[2] = {{kNone, 0}, {kNone, 0}};
  for (int begin = oldest / kChunk * kChunk; begin < s.length; begin += kChunk) {
    Running chunk[2] = {{kNone, 0}, {kNone, 0}};
    float x[kTiles][4] = {};
    // Segments without a key would change nothing.
    for (int base = begin; base < min(begin + kChunk, s.length); base += kSegment) {
      float score[4][4] = {};
      score_segment<D, kKeysTogether>(s, base, g, t, query, score);
      Running part[2];
      uint32_t p[2][4];
      exponentials(score, base, t, first, length, scale, p, part);
      Factors f[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const cpu::Merge m = merge(chunk[h], part[h]);
        f[h] = {m.keep, m.add}, chunk[h] = {m.m, m.l};
      }
      mix_segment<kValues, false>(s, base, g, t, p, [&](int d, const float(&y)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[d][i] = merged(f[i / 2], x[d][i], y[i]);
      });
    }
    Factors f[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const cpu::Merge m = merge(all[h], chunk[h]);
      f[h] = {m.keep, m.add};
      all[h] = {m.m, merged(f[h], all[h].l, chunk[h].l)};
    }
#pragma unroll
    for (int d = 0; d < kTiles; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = kept[(4 * d + i) * kPromptThreads];
        sum = merged(f[i / 2], sum, x[d][i]);
      }
  }
#pragma unroll 4
  for (int i = 0; i < kTiles * 4; ++i) {
    const int h = i / 2 % 2, number = q0 + g + 8 * h, dim = values_from + i / 4 * 8 + 2 * t + i % 2;
    if (g + 8 * h >= queries || dim >= a.head_dim) continue;
    static_cast<uint16_t*>(
        a.out)[static_cast<size_t>(row + number / group) * static_cast<size_t>(a.out_stride) +
               static_cast<size_t>((kv_head * group + number % group) * a.head_dim + dim)] =
        float_to_bf16(kept[i * kPromptThreads] / all[h].l);
  }
}

// float32, the definition: a thread block is one row and head; a thread a key, then a dimension.
__global__ void __launch_bounds__(kChunk) attend_row_f32(AttentionArguments a) {
  wait_for_previous();
  auto* shared = reinterpret_cast<float*>(evalrun_shared_memory());
  float* score = shared;                                                      // [128]
  float* lane = score + kChunk;                                               // [16]
  const float** value = reinterpret_cast<const float**>(lane + cpu::kLanes);  // [128]
  const int i = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int hd = a.head_dim, group = a.heads / a.kv_heads, kv_head = head / group;
  const StepRow& row = a.rows[i];
  const float* q = static_cast<const float*>(a.q) +
                   (static_cast<size_t>(i) * a.heads + static_cast<size_t>(head)) * hd;
  const float scale = 1.0f / sqrtf(static_cast<float>(hd));
  const auto at = [&](const KeyValues& kv, const void* p, int of_head, int position) {
    return static_cast<const float*>(p) +
           (static_cast<size_t>(of_head) * static_cast<size_t>(kv.capacity) +
            static_cast<size_t>(position)) *
               static_cast<size_t>(hd);
  };
  bool begun = false;
  float m = 0, l = 0;
  float x[2] = {};  // dimensions thread and thread + 128
  for (int part = row.prefix ? 0 : 1; part < 2; ++part) {
    const int first = part == 0 ? 0 : a.windowed ? row.first_windowed : row.first;
    const int length = part == 0 ? a.prefix_length : row.length;
    for (int begin = first; begin < length;) {
      const int end = min(length, (begin / kChunk + 1) * kChunk), n = end - begin;
      if (thread < n) {
        const int j = begin + thread;
        const float *k, *v;
        if (part == 0) {
          const int h = a.prefix_heads == a.heads ? head : kv_head;
          k = at(a.prefix, a.prefix.k, h, j), v = at(a.prefix, a.prefix.v, h, j);
        } else if (j < row.cached) {
          const int h = row.sequence * a.kv_heads + kv_head;
          k = at(a.cache, a.cache.k, h, j), v = at(a.cache, a.cache.v, h, j);
        } else {
          const int r = a.visible[row.visible + j - row.cached];
          k = at(a.step, a.step.k, kv_head, r), v = at(a.step, a.step.v, kv_head, r);
        }
        float sum = 0;
        for (int d = 0; d < hd; ++d) sum = fmaf(q[d], k[d], sum);
        score[thread] = sum * scale;
        value[thread] = v;
      }
      __syncthreads();
      float top = score[0];
      for (int j = 1; j < n; ++j) top = top < score[j] ? score[j] : top;
      __syncthreads();
      if (thread < n) score[thread] = cpu::exp_fixed(score[thread] - top);
      __syncthreads();
      if (thread < cpu::kLanes) {
        float sum = 0;
        for (int j = 0; j < n; ++j)
          if ((begin + j) % cpu::kLanes == thread) sum = sum + score[j];
        lane[thread] = sum;
      }
      __syncthreads();
      float copy[cpu::kLanes];
      for (int j = 0; j < cpu::kLanes; ++j) copy[j] = lane[j];
      const float chunk_sum = cpu::sum_lanes(copy);
      const cpu::Merge g =
          begun ? cpu::merge_chunk(m, l, top, chunk_sum) : cpu::Merge{top, chunk_sum, 0.0f, 0.0f};
      for (int e = 0; e < 2; ++e) {
        const int d = thread + e * kChunk;
        if (d >= hd) break;
        float sum = 0;
        for (int j = 0; j < n; ++j) sum = fmaf(score[j], value[j][d], sum);
        x[e] = begun ? x[e] * g.keep + sum * g.add : sum;
      }
      m = g.m, l = g.l;
      begun = true;
      begin = end;
      __syncthreads();
    }
  }
  for (int e = 0; e < 2; ++e)
    if (const int d = thread + e * kChunk; d < hd)
      static_cast<float*>(a.out)[static_cast<size_t>(i) * static_cast<size_t>(a.out_stride) +
                                 static_cast<size_t>(head * hd + d)] = x[e] / l;
}

size_t chunk_shared_bytes(int d) {
  return static_cast<size_t>(kWarps) * kQueries * (static_cast<size_t>(value_stride(d)) + 4) *
         sizeof(float);
}

template <int D>
void launch_chunks(const AttentionArguments& a, cudaStream_t stream) {
  launch("attend_chunk", attend_chunk<D>,
         dim3(static_cast<unsigned>(a.max_items), static_cast<unsigned>(a.kv_heads)), kThreads,
         chunk_shared_bytes(D), stream, a);
}

size_t prompt_shared_bytes(int d) {
  return static_cast<size_t>(d / 16 * 4 + prompt_values(d) / 8 * 4) * kPromptThreads *
         sizeof(float);
}

template <int D>
void launch_prompt(const AttentionArguments& a, cudaStream_t stream) {
  const PromptTiles tiles = prompt_tiles_of(a.n_rows, a.heads / a.kv_heads);
  launch("attend_prompt", attend_prompt<D>,
         dim3(static_cast<unsigned>((tiles.n + kPromptWarps - 1) / kPromptWarps),
              static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(D / prompt_values(D))),
         kPromptThreads, prompt_shared_bytes(D), stream, a);
}

// The kernel of this head stride.
template <typename F>
void of_stride(int head_stride, const F& run) {
  switch (head_stride) {
    case 32:
      return run(std::integral_constant<int, 32>());
    case 64:
      return run(std::integral_constant<int, 64>());
    case 128:
      return run(std::integral_constant<int, 128>());
    case 256:
      return run(std::integral_constant<int, 256>());
    default:
      check_argument(false, "a head stride the kernels are not made for");
  }
}

}  // namespace

int head_stride_for(int head_dim) {
  for (const int d : {32, 64, 128, 256})
    if (head_dim <= d) return d;
  return 0;
}

size_t partial_floats(int rows, int heads, int slots, int head_stride) {
  return static_cast<size_t>(rows) * static_cast<size_t>(heads) * static_cast<size_t>(slots) *
         (static_cast<size_t>(head_stride) + 2);
}

void prepare_attention() {
  EVALRUN_CUDA(cudaFuncSetAttribute(attend_chunk<256>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(chunk_shared_bytes(256))));
}

int& enough_prompt_tiles() {
  static int tiles = 1024;
  return tiles;
}

bool attends_at_once(int rows, int keys, int heads, int kv_heads, int head_stride) {
  if (prompt_tiles_of(rows, heads / kv_heads).n * kv_heads >= enough_prompt_tiles()) return true;
  return rows > kSplitRows && partial_floats(rounded_size(rows, 16), heads,
                                             rounded_size((keys + kChunk - 1) / kChunk, 8),
                                             head_stride) > kMostPromptPartial;
}

int& merge_batch() {
  static int batch = 128;
  return batch;
}

void attend_bf16(const AttentionArguments& a, cudaStream_t stream) {
  if (a.at_once)
    return of_stride(a.head_stride, [&](auto d) { launch_prompt<decltype(d)::value>(a, stream); });
  of_stride(a.head_stride, [&](auto d) { launch_chunks<decltype(d)::value>(a, stream); });
  AttentionArguments b = a;
  b.merge_batch = merge_batch();
  launch("merge_chunks", merge_chunks,
         dim3(static_cast<unsigned>(b.n_rows), static_cast<unsigned>(b.heads)), b.head_stride,
         static_cast<size_t>(b.merge_batch) * (sizeof(Running) + sizeof(Factors)), stream, b);
}

void attend_f32(const AttentionArguments& a, cudaStream_t stream) {
  const size_t shared = (kChunk + cpu::kLanes) * sizeof(float) + kChunk * sizeof(float*);
  launch("attend_row_f32", attend_row_f32,
         dim3(static_cast<unsigned>(a.n_rows), static_cast<unsigned>(a.heads)), kChunk, shared,
         stream, a);
}

}  // namespace evalrun::engine::cuda
