// V and D (kernels_impl.h, products_impl.h) in AVX-512 with VNNI. Only for files compiled for it.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/product_kind.h"

namespace {

using evalrun::engine::cpu::Kind;

struct V {
  __m512 v;
  static constexpr int kTileQueries = 6;
  static constexpr int tile_columns(int) { return 4; }
  static V load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static V load(const uint16_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
  }
  static V load(const int8_t* p) {
    return {_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  // One half of 16 bytes, the lower (shift 0) or the upper one (shift 4): codes of 4 bits. Of other
  // bits there is anything: tables are looked up with the lowest four.
  typedef uint32_t Numbers __attribute__((vector_size(64)));
  static __m512i codes(const uint8_t* p, int shift) {
    const auto bytes = reinterpret_cast<Numbers>(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    return reinterpret_cast<__m512i>(bytes >> shift);
  }
  static V each_code() {
    return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
  }
  static V of_codes(const uint8_t* p, int shift) {
    return {_mm512_permutexvar_ps(codes(p, shift), each_code().v)};
  }
  struct CodeValues {
    __m512 of_code;  // [code]
  };
  static CodeValues code_values(uint32_t steps) {
    const __m512i both = _mm512_set1_epi32(static_cast<int>(steps));
    const __m512i scale = _mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
    return {_mm512_fmadd_ps(each_code().v, _mm512_castsi512_ps(scale),
                            _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)))};
  }
  static V of_codes(const uint8_t* p, int shift, const CodeValues& values) {
    return {_mm512_permutexvar_ps(codes(p, shift), values.of_code)};
  }
  // The sign above, exponent and mantissa below it as a half has them, whose bias is 8 more. Bit 14
  // is another copy of the sign.
  static V of_fp8(const uint8_t* p) {
    const __m256i words = _mm256_slli_epi16(
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 7);
    return {
        _mm512_cvtph_ps(_mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0xBFFF))))};
  }
  static V of_half(const std::byte* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static V load_first(const float* p, int n) {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p)};
  }
  static void store_first(float* p, int n, V x) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x.v);
  }
  static V zero() { return {_mm512_setzero_ps()}; }
  static V bcast(float x) { return {_mm512_set1_ps(x)}; }
  static V fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static V vmax(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }
  static V vmin(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
  static V abs(V a) { return {_mm512_abs_ps(a.v)}; }
  static V select_gt(V a, V b, V x, V y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), y.v, x.v)};
  }
  static float sum(V x) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static float largest(V x) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }
  static V exp2i(V y, V t) {
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y.v),
                                                 _mm512_slli_epi32(_mm512_castps_si512(t.v), 23)))};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  // float_to_bfloat16 (engine/model/weight_matrix.h) in the upper halves of the lanes; the lower
  // ones hold anything.
  static __m512i bf16_above(V x) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    // False for what is not a number, as in the scalar code. The sign alone stays of what is tiny.
    const __mmask16 tiny =
        _mm512_cmp_ps_mask(_mm512_abs_ps(x.v), _mm512_set1_ps(0x1p-50f), _CMP_LT_OQ);
    return _mm512_mask_and_epi32(rounded, tiny, bits,
                                 _mm512_set1_epi32(static_cast<int>(0x80000000u)));
  }
  static void store_bf16(uint16_t* p, V x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_above(x), 16)));
  }
  static void store_bytes(int8_t* p, V x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.v)));
  }
  // to[j], of four vectors: in quarter q their numbers 4 q + j.
  static void columns_of_quarters(const __m512i* from, __m512i* to) {
    const __m512i low01 = _mm512_unpacklo_epi32(from[0], from[1]),
                  high01 = _mm512_unpackhi_epi32(from[0], from[1]),
                  low23 = _mm512_unpacklo_epi32(from[2], from[3]),
                  high23 = _mm512_unpackhi_epi32(from[2], from[3]);
    to[0] = _mm512_unpacklo_epi64(low01, low23), to[1] = _mm512_unpackhi_epi64(low01, low23);
    to[2] = _mm512_unpacklo_epi64(high01, high23), to[3] = _mm512_unpackhi_epi64(high01, high23);
  }
  // Lanes 2 j and 2 j + 1 of a block are one number of 32 bits: eight of them are a line of 32
  // bytes, two lines a vector.
  template <typename F>
  static void store_keys(const F& key, int lane, int n, uint16_t* p) {
    const auto bf16_of = [&](int l) {
      return l >= lane && l < lane + n ? bf16_above(key(l - lane)) : _mm512_setzero_si512();
    };
    __m512i pair[8], low[4], high[4];
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j)
      pair[j] = _mm512_or_si512(
          _mm512_srli_epi32(bf16_of(2 * j), 16),
          _mm512_and_si512(bf16_of(2 * j + 1), _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
    columns_of_quarters(pair, low);
    columns_of_quarters(pair + 4, high);
    const uint32_t lanes = ((1u << n) - 1) << lane;
    const auto put = [&](int d, __m512i lines) {
      uint16_t* to = p + 16 * d;
      if (n < 16) lines = _mm512_mask_mov_epi16(_mm512_loadu_si512(to), lanes | lanes << 16, lines);
      _mm512_storeu_si512(to, lines);
    };
#pragma GCC unroll 2
    for (int d = 0; d < 4; d += 2) {
      const __m512i even01 = _mm512_shuffle_i32x4(low[d], high[d], 0x44),
                    even23 = _mm512_shuffle_i32x4(low[d], high[d], 0xEE),
                    odd01 = _mm512_shuffle_i32x4(low[d + 1], high[d + 1], 0x44),
                    odd23 = _mm512_shuffle_i32x4(low[d + 1], high[d + 1], 0xEE);
      put(d, _mm512_shuffle_i32x4(even01, odd01, 0x88));
      put(d + 4, _mm512_shuffle_i32x4(even01, odd01, 0xDD));
      put(d + 8, _mm512_shuffle_i32x4(even23, odd23, 0x88));
      put(d + 12, _mm512_shuffle_i32x4(even23, odd23, 0xDD));
    }
  }
  friend V operator+(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend V operator-(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend V operator*(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend V operator/(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
};

// vpdpbusd: 16 sums of four unsigned by signed byte products.
struct D {
  using Sum = __m512i;
  using Line = __m512i;
  using Four = __m512i;
  static constexpr int kBias = 128;
  static Sum splat(int32_t x) { return _mm512_set1_epi32(x); }
  static Sum from_memory(const int32_t* p) { return _mm512_loadu_si512(p); }
  static Line line(const std::byte* p) { return _mm512_loadu_si512(p); }
  static Four four(const std::byte* p) {
    int32_t x;
    __builtin_memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
  }
  // As assembly: GCC 12 copies and spills the accumulators of a large tile of intrinsics.
  [[gnu::always_inline]] static inline void dot(Sum& sum, Line w, Four x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  }

  // Of codes of 4 to 6 bits.
  using Codes = __m512i;
  using Narrow = __m512i;
  using Scale = __m512i;
  using Pairs = __m512i;
  static constexpr int lines_of_narrow(int /*bits*/) { return 8; }
  static Codes low_codes(const std::byte* p) {
    return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(15));
  }
  static Codes high_codes(const std::byte* p) {
    return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(p), 4), _mm512_set1_epi8(15));
  }
  // Shifts of words as GCC writes them: the intrinsics want a constant even where it is one only
  // after a loop was unrolled.
  typedef uint16_t Words __attribute__((vector_size(64)));
  static Codes add_high(Codes codes, const std::byte* p, int bit, int mask) {
    const auto bits = reinterpret_cast<Words>(_mm512_loadu_si512(p));
    const Words moved = bit < 4 ? bits << (4 - bit) : bits >> (bit - 4);
    constexpr int kOrOfAnd = 0xF8;  // a | (b & c)
    return _mm512_ternarylogic_epi32(codes, reinterpret_cast<__m512i>(moved),
                                     _mm512_set1_epi8(static_cast<char>(mask)), kOrOfAnd);
  }
  static Narrow narrow(int32_t start) { return _mm512_set1_epi32(start); }
  [[gnu::always_inline]] static inline void dot_codes(Narrow& sum, Codes w, Four x) {
    dot(sum, w, x);
  }
  static Scale scale_at(const std::byte* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Sum times(Sum s, Scale scale) { return _mm512_mullo_epi32(s, scale); }
  static void add_scaled(Sum& sum, Narrow n, Scale scale) { sum = add(sum, times(n, scale)); }
  static Pairs pairs_at(const std::byte* p) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void dot_pairs(Sum& sum, Pairs w, int32_t two) {
    sum = _mm512_dpwssd_epi32(sum, w, _mm512_set1_epi32(two));
  }
  static Sum sum_of(Narrow n) { return n; }
  static int32_t start_of_k(const std::byte* lo) {
    // The instruction sums unsigned bytes, eight each.
    const __m128i biased =
        _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lo)), _mm_set1_epi8(-128));
    const __m128i halves = _mm_sad_epu8(biased, _mm_setzero_si128());
    return -32 * (_mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128);
  }

  static Sum shl7(Sum s) { return _mm512_slli_epi32(s, 7); }
  static Sum add(Sum a, Sum b) { return _mm512_add_epi32(a, b); }
  static V to_float(Sum s) { return {_mm512_cvtepi32_ps(s)}; }

  // Integers as 16 bits and as bytes. Packing works within 128-bit lanes: in words() lane i holds
  // the fours number i of both vectors. The permutation of bytes() puts all fours in order.
  static __m512i words(V a, V b) {
    return _mm512_packs_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v));
  }
  static __m512i bytes(__m512i a, __m512i b) {
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _mm512_packs_epi16(a, b));
  }
  static void store_lo(__m512i q, std::byte* lo, int32_t* sums) {
    _mm512_storeu_si512(lo, q);
    // The instruction sums unsigned bytes, eight each.
    const __m512i eights =
        _mm512_sad_epu8(_mm512_xor_si512(q, _mm512_set1_epi8(-128)), _mm512_setzero_si512());
    const __m512i halves = _mm512_add_epi64(eights, _mm512_shuffle_epi32(eights, _MM_PERM_BADC));
    const __m512i all = _mm512_add_epi64(halves, _mm512_shuffle_i64x2(halves, halves, 0xB1));
    const __m128i both =
        _mm_unpacklo_epi32(_mm512_castsi512_si128(all), _mm512_extracti32x4_epi32(all, 2));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(sums),
                     _mm_sub_epi32(both, _mm_set1_epi32(32 * 128)));
  }
  static uint32_t split64(const V* x, std::byte* lo, int32_t* sums, int32_t* hi, int32_t* hi_sums) {
    const __m512i a = words(x[0], x[1]), b = words(x[2], x[3]), most = _mm512_set1_epi16(127);
    const __mmask32 wide_a = _mm512_cmpgt_epi16_mask(_mm512_abs_epi16(a), most);
    const __mmask32 wide_b = _mm512_cmpgt_epi16_mask(_mm512_abs_epi16(b), most);
    if ((wide_a | wide_b) == 0) {
      store_lo(bytes(a, b), lo, sums);
      return 0;
    }
    const __m512i half = _mm512_set1_epi16(64);
    const __m512i hi_a = _mm512_maskz_srai_epi16(wide_a, _mm512_add_epi16(a, half), 7);
    const __m512i hi_b = _mm512_maskz_srai_epi16(wide_b, _mm512_add_epi16(b, half), 7);
    store_lo(bytes(_mm512_sub_epi16(a, _mm512_slli_epi16(hi_a, 7)),
                   _mm512_sub_epi16(b, _mm512_slli_epi16(hi_b, 7))),
             lo, sums);
    const __m512i fours = bytes(hi_a, hi_b);
    _mm512_store_si512(hi, fours);
    _mm512_store_si512(hi_sums,
                       _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), fours));
    return _mm512_test_epi32_mask(fours, fours);
  }
};

inline void widen_pairs(const std::byte* p, V& even, V& odd) {
  const __m512i v = _mm512_loadu_si512(p);
  even.v = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
  odd.v =
      _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

// 32 registers: the sums of a tile, its P lines and one input. Grouped kinds hold two sums each,
// K-quants, too, and a third in memory.
constexpr bool is_plain(Kind kind) {
  return kind == Kind::kF32 || kind == Kind::kBf16 || kind == Kind::kChannel;
}
constexpr bool is_grouped(Kind kind) {
  return kind == Kind::kGroup || kind == Kind::kQ4 || kind == Kind::kQ4Centred;
}
constexpr int tile_rows(Kind kind) { return is_plain(kind) ? 8 : 4; }
// Up to eight rows of a grouped kind are one tile of two panels, too. It reads the weights once,
// where two tiles of four rows read them again from L2. At eight rows the second sums of the tile
// are in memory, which costs a Zen 5 less than a tile of one panel, whose inputs serve 16 channels
// (eight rows from memory: q4-group 275 and 220 G multiply-adds/s, int8-group 238 and 210). With
// more rows a second pass is certain, and tiles of four rows and three panels are faster: an input
// serves three panels.
constexpr int rows_at_once(Kind kind) { return is_grouped(kind) ? 8 : tile_rows(kind); }
constexpr int tile_panels(Kind kind, int rows) {
  if (is_grouped(kind)) return rows <= 2 ? 6 : rows <= 4 ? 3 : rows <= 8 ? 2 : 1;
  if (!is_plain(kind)) return rows <= 1 ? 6 : 3;
  return rows <= 4 ? 6 : 3;
}

}  // namespace
