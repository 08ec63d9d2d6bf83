#include "engine/cpu/kernels.h"

#include <vector>

#include "engine/cpu/kernels_avx2.h"
#include "engine/cpu/kernels_avx512.h"

namespace evalrun::engine::cpu {
namespace {

std::vector<const Kernels*> detect() {
  std::vector<const Kernels*> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  if (avx512 && avx512_kernels() != nullptr) found.push_back(avx512_kernels());
  if (avx2 && avx2_kernels() != nullptr) found.push_back(avx2_kernels());
#endif
  return found;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> found = detect();
  return found;
}

const Kernels* find_kernels(std::string_view name) {
  for (const Kernels* k : available_kernels())
    if (name == k->name) return k;
  return nullptr;
}

}  // namespace evalrun::engine::cpu
