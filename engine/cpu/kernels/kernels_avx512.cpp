#include "engine/cpu/kernels/kernels_avx512.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
// Each builds on those before it.
// clang-format off
#include "engine/cpu/kernels/vectors_avx512_impl.h"
#include "engine/cpu/kernels/widened_bf16_impl.h"
#include "engine/cpu/kernels/kernels_impl.h"
#include "engine/cpu/kernels/rows_impl.h"
#include "engine/cpu/kernels/products_impl.h"
#include "engine/cpu/kernels/k_products_impl.h"
#include "engine/cpu/kernels/kernels_table_impl.h"
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
