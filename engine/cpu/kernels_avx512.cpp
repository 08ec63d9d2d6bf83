#include "engine/cpu/kernels_avx512.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
// Each builds on those before it.
// clang-format off
#include "engine/cpu/vectors_avx512_impl.h"
#include "engine/cpu/widened_bf16_impl.h"
#include "engine/cpu/kernels_impl.h"
#include "engine/cpu/products_impl.h"
#include "engine/cpu/kernels_table_impl.h"
// clang-format on

namespace evalrun::engine::cpu {
const Kernels* avx512_kernels() {
  static constexpr Kernels k = table_named("avx512");
  return &k;
}
}  // namespace evalrun::engine::cpu

#else
namespace evalrun::engine::cpu {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace evalrun::engine::cpu
#endif
