#include "engine/cpu/kernels_avx512.h"

#include "engine/cpu/arith.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#include <cstddef>

namespace {
struct V {
  __m512 v;
  static constexpr int panels_for(int rows) { return rows <= 2 ? 8 : 4; }
  static V load(const float* p) { return {_mm512_loadu_ps(p)}; }
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
  static V exp2i(V y, V t) {
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y.v),
                                                 _mm512_slli_epi32(_mm512_castps_si512(t.v), 23)))};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  friend V operator+(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend V operator-(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend V operator*(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend V operator/(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
};
}  // namespace

#include "engine/cpu/kernels_impl.h"

namespace evalrun::engine::cpu {
const Kernels* avx512_kernels() {
  static const Kernels k = {"avx512", ::gemm,          ::rms_norm,     ::silu_mul, ::add,
                            ::scores, ::softmax_chunk, ::weighted_sum, ::merge};
  return &k;
}
}  // namespace evalrun::engine::cpu

#else
namespace evalrun::engine::cpu {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace evalrun::engine::cpu
#endif
