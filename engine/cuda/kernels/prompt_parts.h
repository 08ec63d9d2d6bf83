// Rows of a prompt, attended to without partial results in memory: all of a kernel but its name. T
// is what the cache holds (attention_parts.h).
#pragma once
#include "engine/cuda/kernels/attention_parts.h"

namespace evalrun::engine::cuda {

constexpr int kPromptWarps = 2;  // few, so that blocks fill what registers there are
constexpr int kPromptThreads = kPromptWarps * kWarp;
// Dimensions of values that one of its warps takes.
constexpr int prompt_values(int d) { return d < 128 ? d : 128; }

// Where one key head's keys and values lie, all in the cache.
template <typename T>
struct CachedKeys {
  const T *k, *v;
  int capacity;
  int length;  // keys from here on do not exist
};

// Values of a segment weighted by `p`: take(d, x) gets D of mma_bf16 for dimensions 8 d ... Whole
// words, of which the cache has all; keys that are none count as zero.
template <int D, typename T, typename Take>
__device__ __forceinline__ void mix_segment(const CachedKeys<T>& s, int base, int g, int t,
                                            const uint32_t (&p)[2][4], const Take& take) {
  constexpr int kTiles = D / 8, kTogether = 4;
  uint32_t there[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = base + 8 * t + 2 * i;
    there[i] = (key < s.length ? 0xffffu : 0u) | (key + 1 < s.length ? 0xffff0000u : 0u);
  }
  const T* from = s.v + static_cast<size_t>(g) * static_cast<size_t>(s.capacity) + (base + 8 * t);
  const size_t step = 8 * static_cast<size_t>(s.capacity);
#pragma unroll
  for (int first = 0; first < kTiles; first += kTogether) {
    Eight<T> v[kTogether];
#pragma unroll
    for (int d = 0; d < kTogether; ++d, from += step)
      v[d] = *reinterpret_cast<const Eight<T>*>(from);
#pragma unroll
    for (int d = 0; d < kTogether; ++d) {
      const uint4& words = as_bf16<T>(v[d]);
      float x[4] = {};
      mma_bf16(x, p[0], words.x & there[0], words.y & there[1]);
      mma_bf16(x, p[1], words.z & there[2], words.w & there[3]);
      take(first + d, x);
    }
  }
}

// Rows of a prompt: a warp is a tile of queries, and goes from their first key to their last with
// running sums. The same products and sums in the same order as by chunks, without partial results
// in memory: segments into the chunk's sums, in registers; chunks into the row's, which every
// thread keeps for itself in shared memory, as its queries. Warps have nothing in common but the
// keys they read. More than 128 dimensions of values are too many for registers: a grid's z each.
template <int D, typename T>
__device__ __forceinline__ void attend_tile(const AttentionArguments& a) {
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

  CachedKeys<T> s;
  constexpr size_t kLine = D + (kHasScales<T> ? sizeof(float) : 0);  // of T
  const size_t head = static_cast<size_t>(a.rows[row].sequence * a.kv_heads + kv_head) *
                      static_cast<size_t>(a.cache.capacity) * kLine;
  s.k = static_cast<const T*>(a.cache.k) + head;
  s.v = static_cast<const T*>(a.cache.v) + head +
        static_cast<size_t>(values_from) * static_cast<size_t>(a.cache.capacity);
  s.capacity = a.cache.capacity;
  s.length = a.rows[row + rows - 1].length;
  [[maybe_unused]] const unsigned char *k_scales = nullptr, *v_scales = nullptr;
  if constexpr (kHasScales<T>) {
    const size_t at = head + byte_scale_at(0, static_cast<size_t>(s.capacity), 0, D);
    k_scales = static_cast<const unsigned char*>(a.cache.k) + at;
    v_scales = static_cast<const unsigned char*>(a.cache.v) + at;
  }
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
      const auto line = [&](int i) {
        return s.k + static_cast<size_t>(min(key_of_tile(base, g, i), s.length - 1)) * D;
      };
      // Scales of the key base + lane and of its value, which may be none.
      [[maybe_unused]] float2 scales;
      if constexpr (kHasScales<T>) {
        const int at = static_cast<int>(sizeof(float)) * min(base + lane, s.length - 1);
        scales = make_float2(*reinterpret_cast<const float*>(k_scales + at),
                             *reinterpret_cast<const float*>(v_scales + at));
      }
      score_segment<D, T, kKeysTogether>(line, t, query, score);
      if constexpr (kHasScales<T>) scale_scores(scales.x, t, score);
      Running part[2];
      uint32_t p[2][4];
      exponentials(score, base, t, first, length, scale, 2, p, part);
      if constexpr (kHasScales<T>) scale_probabilities(scales.y, t, p);
      Factors f[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const cpu::Merge m = merge(chunk[h], part[h]);
        f[h] = {m.keep, m.add}, chunk[h] = {m.m, m.l};
      }
      mix_segment<kValues>(s, base, g, t, p, [&](int d, const float(&y)[4]) {
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

inline size_t prompt_shared_bytes(int d) {
  return static_cast<size_t>(d / 16 * 4 + prompt_values(d) / 8 * 4) * kPromptThreads *
         sizeof(float);
}

inline void launch_prompt(const char* name, void (*kernel)(AttentionArguments), int d,
                          const AttentionArguments& a, cudaStream_t stream) {
  const PromptTiles tiles = prompt_tiles_of(a.n_rows, a.heads / a.kv_heads);
  launch(name, kernel,
         dim3(static_cast<unsigned>((tiles.n + kPromptWarps - 1) / kPromptWarps),
              static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(d / prompt_values(d))),
         kPromptThreads, prompt_shared_bytes(d), stream, a);
}

}  // namespace evalrun::engine::cuda
