#include "engine/cpu/kernels/kernels_portable.h"

// Each builds on those before it.
// clang-format off
#include "engine/cpu/kernels/vectors_portable_impl.h"
#include "engine/cpu/kernels/widened_bf16_impl.h"
#include "engine/cpu/kernels/kernels_impl.h"
#include "engine/cpu/kernels/rows_impl.h"
#include "engine/cpu/kernels/products_impl.h"
#include "engine/cpu/kernels/k_products_impl.h"
#include "engine/cpu/kernels/kernels_table_impl.h"
// clang-format on

namespace evalrun::engine::cpu {
const Kernels* portable_kernels() {
  static constexpr Kernels k = table_named("portable");
  return &k;
}
}  // namespace evalrun::engine::cpu
