// vdpbf16ps: two bfloat16 products per lane and instruction, odd input first, each added with one
// rounding - the two fma of the definition, because products of bfloat16 are exact. Denormals,
// which it flushes, never occur (float_to_bfloat16).
#include "engine/cpu/kernels/kernels_avx512.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__) && defined(__AVX512BF16__)
#include "engine/cpu/kernels/vectors_avx512_impl.h"

namespace {

struct B {
  using Line = __m512i;
  using Pair = __m512i;
  static constexpr int kBytesPerInput = 2;
  static Line line(const std::byte* p) { return _mm512_loadu_si512(p); }
  static Pair pair(const std::byte* p) {
    int32_t x;
    __builtin_memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
  }
  [[gnu::always_inline]] static inline void dot(V& sum, Line w, Pair x) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.v) : "v"(w), "v"(x));
  }
};

void round_row(const float* x, int n, int padded, std::byte* values) {
  const __m512 tiny = _mm512_set1_ps(0x1p-50f);
  for (int i = 0; i < padded; i += 16) {
    const int left = n - i;
    const __mmask16 there = left >= 16 ? 0xFFFF : left > 0 ? (1u << left) - 1 : 0;
    const __m512 v = _mm512_maskz_loadu_ps(there, x + i);
    // Not a number stays one: the comparison is "not below".
    const __mmask16 kept = _mm512_cmp_ps_mask(_mm512_abs_ps(v), tiny, _CMP_NLT_UQ);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_mov_ps(kept, v));
    __builtin_memcpy(values + 2 * i, &rounded, sizeof rounded);
  }
}

}  // namespace

#include "engine/cpu/kernels/products_impl.h"

namespace evalrun::engine::cpu {
void avx512_bf16_override(Kernels& k) {
  k.bytes_per_bf16 = B::kBytesPerInput;
  k.multiply_bf16 = multiply_panels<Kind::kBf16>;
  k.round_bf16 = round_row;
}
}  // namespace evalrun::engine::cpu

#else
namespace evalrun::engine::cpu {
void avx512_bf16_override(Kernels&) {}
}  // namespace evalrun::engine::cpu
#endif
