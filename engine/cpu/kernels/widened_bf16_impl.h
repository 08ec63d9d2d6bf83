// B (products_impl.h) where no instruction multiplies bfloat16: inputs of a row are kept widened to
// float32, and a pair is two fma, the odd input first. Needs V and widen_pairs(line, even, odd).
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/model/weight_matrix.h"

namespace {

struct B {
  struct Line {
    V even, odd;
  };
  struct Pair {
    float even, odd;
  };
  static constexpr int kBytesPerInput = 4;
  static Line line(const std::byte* p) {
    Line l;
    widen_pairs(p, l.even, l.odd);
    return l;
  }
  static Pair pair(const std::byte* p) {
    Pair x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  static void dot(V& sum, const Line& w, const Pair& x) {
    sum = V::fma(V::bcast(x.odd), w.odd, sum);
    sum = V::fma(V::bcast(x.even), w.even, sum);
  }
  static void round_row(const float* x, int n, int padded, std::byte* values) {
    auto* out = reinterpret_cast<float*>(values);
    for (int i = 0; i < n; ++i)
      out[i] = std::bit_cast<float>(static_cast<uint32_t>(evalrun::engine::float_to_bfloat16(x[i]))
                                    << 16);
    for (int i = n; i < padded; ++i) out[i] = 0;
  }
};

}  // namespace
