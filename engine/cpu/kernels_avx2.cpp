#include "engine/cpu/kernels_avx2.h"

#include "engine/cpu/arith.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {
// Sixteen lanes in two registers, so that lanes and reductions are those of the wider path.
struct V {
  __m256 a, b;
  static constexpr int panels_for(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
  static __m256i mask8(int n) {
    alignas(32) static const int32_t kOnes[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                  0,  0,  0,  0,  0,  0,  0,  0};
    const int m = n < 0 ? 0 : n > 8 ? 8 : n;
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOnes + 8 - m));
  }
  static V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
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
  static __m256 exp2i8(__m256 y, __m256 t) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
  }
  static V exp2i(V y, V t) { return {exp2i8(y.a, t.a), exp2i8(y.b, t.b)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  friend V operator+(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  friend V operator-(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  friend V operator*(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  friend V operator/(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
};
}  // namespace

#include "engine/cpu/kernels_impl.h"

namespace evalrun::engine::cpu {
const Kernels* avx2_kernels() {
  static const Kernels k = {"avx2",   ::gemm,          ::rms_norm,     ::silu_mul, ::add,
                            ::scores, ::softmax_chunk, ::weighted_sum, ::merge};
  return &k;
}
}  // namespace evalrun::engine::cpu

#else
namespace evalrun::engine::cpu {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace evalrun::engine::cpu
#endif
