// What the ways through a context are made of (bfloat16 path): by chunks (chunk_parts.h,
// merge_parts.h) and at once (prompt_parts.h). They must have the same bits, so they share these
// steps. T is what a cache holds: uint16_t (bfloat16), or bytes, with scales: Int8Code, cpu::Fp8.
// Bytes have kernel files of their own.
//
// Register layouts are those of mma_bf16. With g = lane / 4 and t = lane % 4 a lane holds queries g
// and g + 8 of a tile. Of a segment's 32 keys it holds 8 t .. 8 t + 7: column c of score tile i is
// key 8 (c / 2) + 2 i + c % 2, so that the scores are, as they lie, the operand of the product with
// the values.
#pragma once
#include <cstddef>
#include <type_traits>

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {

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

// The maximum of both, and whether there is any key: all that factors depend on. Nothing is
// rounded, so that factors of many parts can be found at once.
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

struct Fragment {
  uint32_t word[4];  // as A of mma_bf16
};

// Eight neighbouring numbers of a cache as they are loaded, and as operands: exact.
template <typename T>
using Eight = std::conditional_t<sizeof(T) == 1, uint2, uint4>;
template <typename T>
constexpr bool kHasScales = sizeof(T) == 1;
template <typename T>
__device__ __forceinline__ uint32_t pair_of(uint32_t codes, int i) {
  return std::is_same_v<T, cpu::Fp8> ? fp8_pair(codes, i) : int8_pair(codes, i);
}
template <typename T>
__device__ __forceinline__ const uint4& as_bf16(const uint4& numbers) {
  return numbers;
}
template <typename T>
__device__ __forceinline__ uint4 as_bf16(const uint2& codes) {
  return make_uint4(pair_of<T>(codes.x, 0), pair_of<T>(codes.x, 1), pair_of<T>(codes.y, 0),
                    pair_of<T>(codes.y, 1));
}

// Word i of four.
__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The key whose line a lane loads for score tile i.
__device__ __forceinline__ int key_of_tile(int base, int g, int i) {
  return base + 8 * (g / 2) + 2 * i + g % 2;
}

// Scores of a segment's keys: score[i] is D of mma_bf16 for score tile i. `line(i)`: where the
// words of this lane's key of that tile are; those of any key where there is none, whose scores
// nobody looks at. q(b, half): the queries at inputs 32 b + 16 half ... Loads of kTogether tiles
// are under way at once.
template <int D, typename T, int kTogether, typename Line, typename Q>
__device__ __forceinline__ void score_segment(const Line& line, int t, const Q& q,
                                              float (&score)[4][4]) {
  constexpr int kBlocks = D / 32;
#pragma unroll
  for (int first = 0; first < 4; first += kTogether) {
    Eight<T> k[kTogether][kBlocks];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const T* from = line(first + i) + 8 * t;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) k[i][b] = *reinterpret_cast<const Eight<T>*>(from + 32 * b);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const uint4& words = as_bf16<T>(k[i][b]);
        mma_bf16(score[first + i], q(b, 0).word, words.x, words.y);
        mma_bf16(score[first + i], q(b, 1).word, words.z, words.w);
      }
  }
}

// Scores of codes to scores of keys. `own`: the scale of this lane's key, base + lane; that of any
// key where there is none.
__device__ __forceinline__ void scale_scores(float own, int t, float (&score)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float scale = __shfl_sync(kAllLanes, own, 8 * t + 2 * i + e);
      score[i][e] = score[i][e] * scale;
      score[i][2 + e] = score[i][2 + e] * scale;
    }
}

// Probabilities to what the codes of their values are multiplied with. What is not seen has no
// part, whatever its scale is. `own`: as above, of the value.
__device__ __forceinline__ void scale_probabilities(float own, int t, uint32_t (&p)[2][4]) {
  const auto scaled = [](float x, float scale) { return x == 0.0f ? 0.0f : x * scale; };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float first = __shfl_sync(kAllLanes, own, 8 * t + 2 * i),
                second = __shfl_sync(kAllLanes, own, 8 * t + 2 * i + 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t& pair = p[i / 2][i % 2 * 2 + h];
      pair = pack_bf16(scaled(low_bf16(pair), first), scaled(high_bf16(pair), second));
    }
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
// steps of 16 keys, rounded to bfloat16 before they are summed. `halves`: 1 where no query of the
// tile is behind the eighth.
__device__ __forceinline__ void exponentials(float (&score)[4][4], int base, int t,
                                             const int (&first)[2], const int (&length)[2],
                                             float scale, int halves, uint32_t (&p)[2][4],
                                             Running (&part)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (h >= halves) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[i / 2][i % 2 * 2 + h] = 0;
      part[h] = {kNone, 0};
      continue;
    }
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

// Parts of attend_bf16() and attend_bytes(), and of what prepares them.
void prepare_bytes();
void attend_prompt_rows(const AttentionArguments& a, cudaStream_t stream);
void attend_prompt_rows_of_bytes(const AttentionArguments& a, KvType type, cudaStream_t stream);
// run(T) with what a cache in bytes holds.
template <typename F>
void of_bytes(KvType type, const F& run) {
  type == KvType::kFp8 ? run(cpu::Fp8()) : run(Int8Code());
}
void merge_partial_results(const AttentionArguments& a, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
