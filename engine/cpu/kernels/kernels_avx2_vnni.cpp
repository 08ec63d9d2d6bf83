#include "engine/cpu/kernels/kernels_avx2.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && defined(__AVXVNNI__)
// Each builds on those before it.
// clang-format off
#include "engine/cpu/kernels/vectors_avx2_impl.h"
#include "engine/cpu/kernels/widened_bf16_impl.h"
#include "engine/cpu/kernels/kernels_impl.h"
#include "engine/cpu/kernels/rows_impl.h"
#include "engine/cpu/kernels/products_impl.h"
#include "engine/cpu/kernels/k_products_impl.h"
#include "engine/cpu/kernels/kernels_table_impl.h"
// clang-format on

namespace evalrun::engine::cpu {
const Kernels* avx2_vnni_kernels() {
  static constexpr Kernels k = table_named("avx2-vnni");
  return &k;
}
}  // namespace evalrun::engine::cpu

#else
namespace evalrun::engine::cpu {
const Kernels* avx2_vnni_kernels() { return nullptr; }
}  // namespace evalrun::engine::cpu
#endif
