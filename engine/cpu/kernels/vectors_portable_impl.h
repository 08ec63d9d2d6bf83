// V and D (kernels_impl.h, products_impl.h) as loops over 16 lanes: any processor.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/fp8.h"
#include "engine/cpu/kernels/int4.h"
#include "engine/cpu/kernels/product_kind.h"
#include "engine/formats/dtype.h"
#include "engine/model/weight_matrix.h"

namespace {

using evalrun::engine::cpu::Kind;

struct V {
  float a[16];
  static constexpr int kTileQueries = 2;
  static constexpr int tile_columns(int) { return 2; }
  template <typename F>
  static V each(const F& f) {
    V r;
    for (int i = 0; i < 16; ++i) r.a[i] = f(i);
    return r;
  }
  static V load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static V load(const uint16_t* p) {
    return each([&](int i) { return std::bit_cast<float>(static_cast<uint32_t>(p[i]) << 16); });
  }
  static V load(const int8_t* p) {
    return each([&](int i) { return static_cast<float>(p[i]); });
  }
  static V of_codes(const uint8_t* p, int shift) {
    return each([&](int i) { return static_cast<float>(p[i] >> shift & 15); });
  }
  struct CodeValues {
    float scale, offset;
  };
  static CodeValues code_values(evalrun::engine::cpu::Int4Steps steps) {
    return {evalrun::engine::cpu::int4_scale(steps), evalrun::engine::cpu::int4_offset(steps)};
  }
  static V of_codes(const uint8_t* p, int shift, const CodeValues& values) {
    return fma(of_codes(p, shift), bcast(values.scale), bcast(values.offset));
  }
  static V of_fp8(const uint8_t* p) {
    return each([&](int i) {
      return evalrun::engine::cpu::fp8_value(static_cast<evalrun::engine::cpu::Fp8>(p[i])) *
             0x1p-8f;
    });
  }
  static V of_half(const std::byte* p) {
    uint16_t h[16];
    std::memcpy(h, p, sizeof h);
    return each([&](int i) { return evalrun::engine::half_to_float(h[i]); });
  }
  static V load_first(const float* p, int n) {
    return each([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void store_first(float* p, int n, const V& x) {
    for (int i = 0; i < n && i < 16; ++i) p[i] = x.a[i];
  }
  static V zero() { return bcast(0); }
  static V bcast(float x) {
    return each([&](int) { return x; });
  }
  static V fma(const V& x, const V& y, const V& z) {
    return each([&](int i) { return std::fma(x.a[i], y.a[i], z.a[i]); });
  }
  static V vmax(const V& x, const V& y) {
    return each([&](int i) { return x.a[i] > y.a[i] ? x.a[i] : y.a[i]; });
  }
  static V vmin(const V& x, const V& y) {
    return each([&](int i) { return x.a[i] < y.a[i] ? x.a[i] : y.a[i]; });
  }
  static V abs(const V& x) {
    return each([&](int i) { return std::fabs(x.a[i]); });
  }
  static V select_gt(const V& a, const V& b, const V& x, const V& y) {
    return each([&](int i) { return a.a[i] > b.a[i] ? x.a[i] : y.a[i]; });
  }
  static float sum(V x) { return evalrun::engine::cpu::sum_lanes(x.a); }
  static float largest(const V& x) {
    float most = x.a[0];
    for (const float v : x.a) most = v > most ? v : most;
    return most;
  }
  static V exp2i(const V& y, const V& t) {
    return each([&](int i) {
      return std::bit_cast<float>(std::bit_cast<uint32_t>(y.a[i]) +
                                  (std::bit_cast<uint32_t>(t.a[i]) << 23));
    });
  }
  void store(float* p) const { std::memcpy(p, a, sizeof a); }
  static void store_bf16(uint16_t* p, const V& x) {
    for (int i = 0; i < 16; ++i) p[i] = evalrun::engine::float_to_bfloat16(x.a[i]);
  }
  static void store_bytes(int8_t* p, const V& x) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(std::nearbyint(x.a[i]));
  }
  template <typename F>
  static void store_keys(const F& key, int lane, int n, uint16_t* p) {
    for (int r = 0; r < n; ++r) {
      const V x = key(r);
      for (int d = 0; d < 16; ++d)
        p[16 * d + lane + r] = evalrun::engine::float_to_bfloat16(x.a[d]);
    }
  }
  friend V operator+(const V& x, const V& y) {
    return each([&](int i) { return x.a[i] + y.a[i]; });
  }
  friend V operator-(const V& x, const V& y) {
    return each([&](int i) { return x.a[i] - y.a[i]; });
  }
  friend V operator*(const V& x, const V& y) {
    return each([&](int i) { return x.a[i] * y.a[i]; });
  }
  friend V operator/(const V& x, const V& y) {
    return each([&](int i) { return x.a[i] / y.a[i]; });
  }
};

struct D {
  struct Sum {
    int32_t a[16];
  };
  struct Line {
    uint8_t a[64];
  };
  struct Four {
    int8_t a[4];
  };
  static constexpr int kBias = 128;
  static Sum splat(int32_t x) {
    Sum s;
    for (int32_t& v : s.a) v = x;
    return s;
  }
  static Sum from_memory(const int32_t* p) {
    Sum s;
    std::memcpy(s.a, p, sizeof s.a);
    return s;
  }
  static Line line(const std::byte* p) {
    Line l;
    std::memcpy(l.a, p, sizeof l.a);
    return l;
  }
  static Four four(const std::byte* p) {
    Four f;
    std::memcpy(f.a, p, sizeof f.a);
    return f;
  }
  static void dot(Sum& sum, const Line& w, const Four& x) {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 4; ++j) sum.a[i] += w.a[4 * i + j] * x.a[j];
  }

  // Of codes of 4 to 6 bits.
  using Codes = Line;
  using Narrow = Sum;
  using Scale = Sum;
  struct Pairs {
    uint8_t a[32];
  };
  static constexpr int lines_of_narrow(int /*bits*/) { return 8; }
  static Codes low_codes(const std::byte* p) {
    Codes c = line(p);
    for (uint8_t& v : c.a) v &= 15;
    return c;
  }
  static Codes high_codes(const std::byte* p) {
    Codes c = line(p);
    for (uint8_t& v : c.a) v >>= 4;
    return c;
  }
  static Codes add_high(Codes codes, const std::byte* p, int bit, int mask) {
    const Line bits = line(p);
    for (int i = 0; i < 64; ++i)
      codes.a[i] = static_cast<uint8_t>(codes.a[i] | ((bits.a[i] >> bit << 4) & mask));
    return codes;
  }
  static Narrow narrow(int32_t start) { return splat(start); }
  static void dot_codes(Narrow& sum, const Codes& w, const Four& x) { dot(sum, w, x); }
  static Scale scale_at(const std::byte* p) {
    Scale s;
    for (int i = 0; i < 16; ++i) s.a[i] = static_cast<int8_t>(p[i]);
    return s;
  }
  static Sum times(Sum s, const Scale& scale) {
    for (int i = 0; i < 16; ++i) s.a[i] *= scale.a[i];
    return s;
  }
  static void add_scaled(Sum& sum, const Narrow& n, const Scale& scale) {
    sum = add(sum, times(n, scale));
  }
  static Pairs pairs_at(const std::byte* p) {
    Pairs w;
    std::memcpy(w.a, p, sizeof w.a);
    return w;
  }
  static void dot_pairs(Sum& sum, const Pairs& w, int32_t two) {
    const int32_t even = static_cast<int16_t>(two), odd = static_cast<int16_t>(two >> 16);
    for (int i = 0; i < 16; ++i) sum.a[i] += w.a[2 * i] * even + w.a[2 * i + 1] * odd;
  }
  static const Sum& sum_of(const Narrow& n) { return n; }
  static int32_t start_of_k(const std::byte* lo) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += static_cast<int8_t>(lo[i]);
    return -32 * sum;
  }

  static Sum shl7(Sum s) {
    for (int32_t& v : s.a) v *= 128;
    return s;
  }
  static Sum add(Sum x, const Sum& y) {
    for (int i = 0; i < 16; ++i) x.a[i] += y.a[i];
    return x;
  }
  static V to_float(const Sum& s) {
    return V::each([&](int i) { return static_cast<float>(s.a[i]); });
  }
  static uint32_t split64(const V* x, std::byte* lo, int32_t* sums, int32_t* hi, int32_t* hi_sums) {
    uint32_t fours = 0;
    sums[0] = sums[1] = 0;
    for (int four = 0; four < 16; ++four) {
      int8_t bytes[4];
      hi_sums[four] = 0;
      for (int j = 0; j < 4; ++j) {
        const int i = 4 * four + j;
        // A value that is not a number has no integer; its row's scale carries it to the result.
        const float r = std::nearbyint(x[i / 16].a[i % 16]);
        const auto s = evalrun::engine::cpu::split_input(r == r ? static_cast<int>(r) : 0);
        lo[i] = static_cast<std::byte>(s.lo);
        bytes[j] = static_cast<int8_t>(s.hi);
        sums[i / 32] += s.lo;
        hi_sums[four] += s.hi;
        if (s.hi != 0) fours |= 1u << four;
      }
      std::memcpy(&hi[four], bytes, sizeof bytes);
    }
    return fours;
  }
};

inline void widen_pairs(const std::byte* p, V& even, V& odd) {
  uint32_t pair[16];
  std::memcpy(pair, p, sizeof pair);
  for (int i = 0; i < 16; ++i) {
    even.a[i] = std::bit_cast<float>(pair[i] << 16);
    odd.a[i] = std::bit_cast<float>(pair[i] & 0xFFFF0000u);
  }
}

constexpr int tile_rows(Kind) { return 2; }
constexpr int rows_at_once(Kind kind) { return tile_rows(kind); }
constexpr int tile_panels(Kind, int) { return 1; }

}  // namespace
