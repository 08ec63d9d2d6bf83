// V and D (kernels_impl.h, products_impl.h) in AVX2 with FMA and F16C; D in AVX-VNNI where the file
// is compiled for it. Only for files compiled for these.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/product_kind.h"

namespace {

using evalrun::engine::cpu::Kind;

// Sixteen lanes in two registers, so that lanes and reductions are those of the wider path.
struct V {
  __m256 a, b;
  // A tile's sums fill up to 12 of the 16 registers. More queries, not more columns: keys and
  // values are widened once per tile, and that takes as many instructions as two queries'
  // multiply-adds.
  static constexpr int kTileQueries = 6;
  static constexpr int tile_columns(int queries) { return queries > 2 ? 1 : 2; }
  static __m256i mask8(int n) {
    alignas(32) static const int32_t kOnes[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                  0,  0,  0,  0,  0,  0,  0,  0};
    const int m = n < 0 ? 0 : n > 8 ? 8 : n;
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOnes + 8 - m));
  }
  static V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static __m256 widen8(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
  }
  static V load(const uint16_t* p) { return {widen8(p), widen8(p + 8)}; }
  static V load(const int8_t* p) {
    const auto* bytes = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes))),
            _mm256_cvtepi32_ps(
                _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8))))};
  }
  // GCC makes one instruction of a shift by a constant, also where it is one only after a loop was
  // unrolled.
  typedef uint32_t Numbers __attribute__((vector_size(32)));
  static __m256 codes8(const uint8_t* p, int shift) {
    const auto bytes = reinterpret_cast<Numbers>(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(reinterpret_cast<__m256i>(bytes >> shift), _mm256_set1_epi32(15)));
  }
  static V of_codes(const uint8_t* p, int shift) {
    return {codes8(p, shift), codes8(p + 8, shift)};
  }
  struct CodeValues {
    __m256 scale, offset;
  };
  static CodeValues code_values(uint32_t steps) {
    const __m256i both = _mm256_set1_epi32(static_cast<int>(steps));
    const __m256i scale = _mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)));
    return {_mm256_castsi256_ps(scale), _mm256_castsi256_ps(_mm256_slli_epi32(both, 16))};
  }
  static V of_codes(const uint8_t* p, int shift, const CodeValues& values) {
    const V codes = of_codes(p, shift);
    return {_mm256_fmadd_ps(codes.a, values.scale, values.offset),
            _mm256_fmadd_ps(codes.b, values.scale, values.offset)};
  }
  // The sign above, exponent and mantissa below it as a half has them, whose bias is 8 more. Bit 14
  // is another copy of the sign.
  static V of_fp8(const uint8_t* p) {
    const __m256i words = _mm256_slli_epi16(
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 7);
    const __m256i halves = _mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0xBFFF)));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  }
  static V of_half(const std::byte* p) {
    const auto* h = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
  }
  static V load_first(const float* p, int n) {
    return {_mm256_maskload_ps(p, mask8(n)),
            n > 8 ? _mm256_maskload_ps(p + 8, mask8(n - 8)) : _mm256_setzero_ps()};
  }
  static void store_first(float* p, int n, V x) {
    _mm256_maskstore_ps(p, mask8(n), x.a);
    if (n > 8) _mm256_maskstore_ps(p + 8, mask8(n - 8), x.b);
  }
  static V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static V bcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static V fma(V x, V y, V z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static V vmax(V x, V y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static V vmin(V x, V y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static V abs(V x) {
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    return {_mm256_and_ps(x.a, m), _mm256_and_ps(x.b, m)};
  }
  static V select_gt(V p, V q, V x, V y) {
    return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_GT_OQ)),
            _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_GT_OQ))};
  }
  static float sum(V x) {
    const __m256 v = _mm256_add_ps(x.a, x.b);
    const __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 q = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
  }
  static float largest(V x) {
    const __m256 v = _mm256_max_ps(x.a, x.b);
    const __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 q = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
  }
  static __m256 exp2i8(__m256 y, __m256 t) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
  }
  static V exp2i(V y, V t) { return {exp2i8(y.a, t.a), exp2i8(y.b, t.b)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  // float_to_bfloat16 (engine/model/weight_matrix.h) in the upper halves of the lanes; the lower
  // ones hold anything.
  static __m256i bf16_above(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    // False for what is not a number, as in the scalar code. The sign alone stays of what is tiny.
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 tiny =
        _mm256_cmp_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(0x1p-50f), _CMP_LT_OQ);
    return _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_and_ps(x, sign), tiny));
  }
  static void store_bf16(uint16_t* p, V x) {
    // Packing works within 128-bit lanes; the permutation puts the four quarters in order.
    const __m256i words = _mm256_packus_epi32(_mm256_srli_epi32(bf16_above(x.a), 16),
                                              _mm256_srli_epi32(bf16_above(x.b), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xD8));
  }
  static void store_bytes(int8_t* p, V x) {
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)), 0xD8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  // to[j], of four vectors: in half q their numbers 4 q + j.
  static void columns_of_halves(const __m256i* from, __m256i* to) {
    const __m256i low01 = _mm256_unpacklo_epi32(from[0], from[1]),
                  high01 = _mm256_unpackhi_epi32(from[0], from[1]),
                  low23 = _mm256_unpacklo_epi32(from[2], from[3]),
                  high23 = _mm256_unpackhi_epi32(from[2], from[3]);
    to[0] = _mm256_unpacklo_epi64(low01, low23), to[1] = _mm256_unpackhi_epi64(low01, low23);
    to[2] = _mm256_unpacklo_epi64(high01, high23), to[3] = _mm256_unpackhi_epi64(high01, high23);
  }
  // Lanes 2 j and 2 j + 1 of a block are one number of 32 bits: eight of them are a line of 32
  // bytes. Eight lines at a time.
  template <typename F>
  static void store_keys(const F& key, int lane, int n, uint16_t* p) {
    const __m256i number = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i lanes = _mm256_and_si256(
        _mm256_cmpgt_epi16(number, _mm256_set1_epi16(static_cast<int16_t>(lane - 1))),
        _mm256_cmpgt_epi16(_mm256_set1_epi16(static_cast<int16_t>(lane + n)), number));
    for (int first = 0; first < 16; first += 8) {
      const auto bf16_of = [&](int l) {
        if (l < lane || l >= lane + n) return _mm256_setzero_si256();
        const V x = key(l - lane);
        return bf16_above(first == 0 ? x.a : x.b);
      };
      __m256i pair[8], low[4], high[4];
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j)
        pair[j] = _mm256_or_si256(
            _mm256_srli_epi32(bf16_of(2 * j), 16),
            _mm256_and_si256(bf16_of(2 * j + 1), _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
      columns_of_halves(pair, low);
      columns_of_halves(pair + 4, high);
      const auto put = [&](int d, __m256i line) {
        auto* to = reinterpret_cast<__m256i*>(p + 16 * (first + d));
        if (n < 16) line = _mm256_blendv_epi8(_mm256_loadu_si256(to), line, lanes);
        _mm256_storeu_si256(to, line);
      };
#pragma GCC unroll 4
      for (int d = 0; d < 4; ++d) {
        put(d, _mm256_permute2x128_si256(low[d], high[d], 0x20));
        put(d + 4, _mm256_permute2x128_si256(low[d], high[d], 0x31));
      }
    }
  }
  friend V operator+(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  friend V operator-(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  friend V operator*(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  friend V operator/(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
};

// 16 sums, 64 weights or codes.
struct Ymm2 {
  __m256i a, b;
};
// What D is with AVX-VNNI and without.
struct IntegersOfBoth {
  using Sum = Ymm2;
  using Line = Ymm2;
  using Codes = Ymm2;
  using Narrow = Ymm2;
  using Four = __m256i;
  using Scale = Ymm2;
  using Pairs = Ymm2;
  static Ymm2 load(const std::byte* p) {
    const auto* v = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  static Codes low_codes(const std::byte* p) {
    const Ymm2 l = load(p);
    const __m256i m = _mm256_set1_epi8(15);
    return {_mm256_and_si256(l.a, m), _mm256_and_si256(l.b, m)};
  }
  static Codes high_codes(const std::byte* p) {
    const Ymm2 l = load(p);
    const __m256i m = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(l.a, 4), m),
            _mm256_and_si256(_mm256_srli_epi16(l.b, 4), m)};
  }
  static Codes add_high(const Codes& codes, const std::byte* p, int bit, int mask) {
    const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
    const auto with = [&](__m256i c, __m256i bits) {
      const __m256i moved =
          bit < 4 ? _mm256_slli_epi16(bits, 4 - bit) : _mm256_srli_epi16(bits, bit - 4);
      return _mm256_or_si256(c, _mm256_and_si256(moved, m));
    };
    const Ymm2 l = load(p);
    return {with(codes.a, l.a), with(codes.b, l.b)};
  }
  static Four four(const std::byte* p) {
    int32_t x;
    __builtin_memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
  }
  static Narrow narrow(int32_t start) {
    return {_mm256_set1_epi32(start), _mm256_set1_epi32(start)};
  }
  // Unsigned bytes to 16 bits: two bytes of every channel.
  static Pairs pairs_at(const std::byte* p) {
    const auto* v = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepu8_epi16(_mm_loadu_si128(v)), _mm256_cvtepu8_epi16(_mm_loadu_si128(v + 1))};
  }
  static Sum add(const Sum& x, const Sum& y) {
    return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
  }
  static Sum shl7(const Sum& s) { return {_mm256_slli_epi32(s.a, 7), _mm256_slli_epi32(s.b, 7)}; }
  static V to_float(const Sum& s) { return {_mm256_cvtepi32_ps(s.a), _mm256_cvtepi32_ps(s.b)}; }
  static Sum splat(int32_t x) { return narrow(x); }
  // Integers as 16 bits and as bytes. Packing works within 128-bit lanes: in words() lane i holds
  // the fours number i of both halves. The permutation of bytes() puts all fours in order.
  static __m256i words(V x) {
    return _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
  }
  static __m256i bytes(__m256i a, __m256i b) {
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  static void store_lo(__m256i q, std::byte* lo, int32_t* sum) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lo), q);
    // The instruction sums unsigned bytes, eight each.
    const __m256i eights =
        _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    const __m128i halves =
        _mm_add_epi32(_mm256_castsi256_si128(eights), _mm256_extracti128_si256(eights, 1));
    const __m128i all = _mm_add_epi32(halves, _mm_shuffle_epi32(halves, 0x4E));
    *sum = _mm_cvtsi128_si32(all) - 32 * 128;
  }
  // Of a group.
  static uint32_t split32(const V* x, std::byte* lo, int32_t* sum, int32_t* hi, int32_t* hi_sums) {
    const __m256i a = words(x[0]), b = words(x[1]), most = _mm256_set1_epi16(127);
    const __m256i wide_a = _mm256_cmpgt_epi16(_mm256_abs_epi16(a), most);
    const __m256i wide_b = _mm256_cmpgt_epi16(_mm256_abs_epi16(b), most);
    const __m256i wide = _mm256_or_si256(wide_a, wide_b);
    if (_mm256_testz_si256(wide, wide) != 0) {
      store_lo(bytes(a, b), lo, sum);
      return 0;
    }
    const auto hi_of = [](__m256i q, __m256i there) {
      return _mm256_and_si256(there,
                              _mm256_srai_epi16(_mm256_add_epi16(q, _mm256_set1_epi16(64)), 7));
    };
    const __m256i hi_a = hi_of(a, wide_a), hi_b = hi_of(b, wide_b);
    store_lo(bytes(_mm256_sub_epi16(a, _mm256_slli_epi16(hi_a, 7)),
                   _mm256_sub_epi16(b, _mm256_slli_epi16(hi_b, 7))),
             lo, sum);
    const __m256i fours = bytes(hi_a, hi_b);
    const __m256i twos = _mm256_maddubs_epi16(_mm256_set1_epi8(1), fours);
    _mm256_store_si256(reinterpret_cast<__m256i*>(hi), fours);
    _mm256_store_si256(reinterpret_cast<__m256i*>(hi_sums),
                       _mm256_madd_epi16(twos, _mm256_set1_epi16(1)));
    const __m256i none = _mm256_cmpeq_epi32(fours, _mm256_setzero_si256());
    return static_cast<uint32_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(none))) & 0xFFu;
  }
  static uint32_t split64(const V* x, std::byte* lo, int32_t* sums, int32_t* hi, int32_t* hi_sums) {
    const uint32_t first = split32(x, lo, sums, hi, hi_sums);
    return first | split32(x + 2, lo + 32, sums + 1, hi + 8, hi_sums + 8) << 8;
  }
};

#if defined(__AVXVNNI__)
// vpdpbusd on halves.
struct D : IntegersOfBoth {
  static constexpr int kBias = 128;
  static Line line(const std::byte* p) { return load(p); }
  static void dot(Sum& s, const Line& w, Four x) {
    s.a = _mm256_dpbusd_avx_epi32(s.a, w.a, x);
    s.b = _mm256_dpbusd_avx_epi32(s.b, w.b, x);
  }
  static constexpr int lines_of_narrow(int /*bits*/) { return 8; }
  static void dot_codes(Narrow& s, const Codes& w, Four x) { dot(s, w, x); }
  static Sum sum_of(const Narrow& n) { return n; }
  static Scale scale_at(const std::byte* p) {
    const auto* v = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(v)),
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Sum times(const Sum& s, const Scale& scale) {
    return {_mm256_mullo_epi32(s.a, scale.a), _mm256_mullo_epi32(s.b, scale.b)};
  }
  static void add_scaled(Sum& sum, const Narrow& n, const Scale& scale) {
    sum = add(sum, times(n, scale));
  }
  static void dot_pairs(Sum& sum, const Pairs& w, int32_t two) {
    sum.a = _mm256_dpwssd_avx_epi32(sum.a, w.a, _mm256_set1_epi32(two));
    sum.b = _mm256_dpwssd_avx_epi32(sum.b, w.b, _mm256_set1_epi32(two));
  }
  static int32_t start_of_k(const std::byte* lo) {
    // The instruction sums unsigned bytes, eight each.
    const __m128i biased =
        _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lo)), _mm_set1_epi8(-128));
    const __m128i halves = _mm_sad_epu8(biased, _mm_setzero_si128());
    return -32 * (_mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128);
  }
};
#else
// vpmaddubsw, which multiplies unsigned bytes by signed ones, adds two products and saturates.
struct D : IntegersOfBoth {
  // Else GCC 12 keeps the products of all lines, most of them in memory, and adds them at the end.
  static void add_now(__m256i& sum) { asm("" : "+x"(sum)); }

  // |w| by x with the sign of w: two products are 2 * 128 * 127 = 32,512 at most.
  static constexpr int kBias = 0;
  static Line line(const std::byte* p) {
    const Ymm2 l = load(p);
    const __m256i m = _mm256_set1_epi8(-128);
    return {_mm256_xor_si256(l.a, m), _mm256_xor_si256(l.b, m)};
  }
  static void dot(Sum& s, const Line& w, Four x) {
    const __m256i ones = _mm256_set1_epi16(1);
    const auto half = [&](__m256i& sum, __m256i weights) {
      const __m256i twos =
          _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(twos, ones));
      add_now(sum);
    };
    half(s.a, w.a);
    half(s.b, w.b);
  }

  // The products of codes are summed in 16 bits, two sums to a channel. They hold eight lines of
  // 4-bit codes (30,480 at most), four of 5-bit codes (31,496), and four of 6-bit codes less 32
  // (32,512; their start and all sums are modulo 2^16).
  static constexpr int lines_of_narrow(int bits) { return bits == 5 ? 4 : 8; }
  static void dot_codes(Narrow& s, const Codes& w, Four x) {
    s.a = _mm256_add_epi16(s.a, _mm256_maddubs_epi16(w.a, x));
    s.b = _mm256_add_epi16(s.b, _mm256_maddubs_epi16(w.b, x));
    add_now(s.a), add_now(s.b);
  }
  static Sum sum_of(const Narrow& n) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(n.a, ones), _mm256_madd_epi16(n.b, ones)};
  }
  // Each scale twice, as 16 bits.
  static Scale scale_at(const std::byte* p) {
    const __m256i both =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const auto spread = [&](int first) {
      // The bytes go to the upper halves of words; -1 makes zeros.
      const auto word = [&](int i) { return 0x00FF00FF | (first + i) << 8 | (first + i) << 24; };
      return _mm256_srai_epi16(
          _mm256_shuffle_epi8(both, _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4),
                                                      word(5), word(6), word(7))),
          8);
    };
    return {spread(0), spread(8)};
  }
  static Sum times(const Sum& s, const Scale& scale) {
    return {_mm256_mullo_epi32(s.a, _mm256_srai_epi32(scale.a, 16)),
            _mm256_mullo_epi32(s.b, _mm256_srai_epi32(scale.b, 16))};
  }
  static void add_scaled(Sum& sum, const Narrow& n, const Scale& scale) {
    sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(n.a, scale.a));
    sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(n.b, scale.b));
  }
  static void dot_pairs(Sum& sum, const Pairs& w, int32_t two) {
    const __m256i x = _mm256_set1_epi32(two);
    sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(w.a, x));
    sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.b, x));
  }
  static int32_t start_of_k(const std::byte* lo) {
    // Of inputs 0 and 1 of the fours, and of 2 and 3.
    const __m128i twos =
        _mm_maddubs_epi16(_mm_set1_epi8(1), _mm_loadu_si128(reinterpret_cast<const __m128i*>(lo)));
    const __m128i halves = _mm_add_epi16(twos, _mm_srli_si128(twos, 8));
    const __m128i all = _mm_add_epi16(halves, _mm_srli_epi64(halves, 32));
    return _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), _mm_slli_epi16(all, 5)));
  }
};
#endif

// 16 registers, and every sum takes two. Grouped kinds have the sums of one group in them.
constexpr bool is_plain(Kind kind) {
  return kind == Kind::kF32 || kind == Kind::kBf16 || kind == Kind::kChannel;
}
constexpr int tile_rows(Kind) { return 4; }
constexpr int rows_at_once(Kind kind) { return tile_rows(kind); }
constexpr int tile_panels(Kind kind, int rows) {
  if (!is_plain(kind)) return rows == 1 ? 2 : 1;
  return rows == 1 ? 3 : rows == 2 ? 2 : 1;
}

inline void widen_pairs(const std::byte* p, V& even, V& odd) {
  const auto* v = reinterpret_cast<const __m256i*>(p);
  const __m256i a = _mm256_loadu_si256(v), b = _mm256_loadu_si256(v + 1);
  const __m256i m = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(a, m)), _mm256_castsi256_ps(_mm256_and_si256(b, m))};
}

}  // namespace
