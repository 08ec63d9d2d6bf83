#include "engine/cpu/kernels_avx2.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && defined(__AVXVNNI__)
// Each builds on those before it.
// clang-format off
#include "engine/cpu/vectors_avx2_impl.h"
#include "engine/cpu/widened_bf16_impl.h"
#include "engine/cpu/kernels_impl.h"
#include "engine/cpu/products_impl.h"
#include "engine/cpu/kernels_table_impl.h"
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
