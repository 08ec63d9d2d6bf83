#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kernels/kernels_amx.h"
#include "engine/cpu/kernels/kernels_avx2.h"
#include "engine/cpu/kernels/kernels_avx512.h"
#include "engine/cpu/kernels/kernels_portable.h"

namespace evalrun::engine::cpu {
namespace {

#if defined(__x86_64__)
// Bits of CPUID leaf 7 that __builtin_cpu_supports of GCC 12 has no name for.
struct Leaf7 {
  bool amx_int8 = false, amx_bf16 = false, avx_vnni = false, avx512_bf16 = false;
  Leaf7() {
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    amx_int8 = (d >> 24 & 1u) != 0 && (d >> 25 & 1u) != 0;
    amx_bf16 = amx_int8 && (d >> 22 & 1u) != 0;
    const unsigned subleaves = a;
    if (subleaves >= 1) {
      __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(1));
      avx_vnni = (a >> 4 & 1u) != 0;
      avx512_bf16 = (a >> 5 & 1u) != 0;
    }
  }
};

// Linux gives the tile registers to a process that asks for them; threads started later have them
// too.
bool tiles_granted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::vector<Kernels> detect() {
  std::vector<Kernels> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const Leaf7 leaf7;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  if (avx512 && avx512_kernels() != nullptr) {
    if (leaf7.avx512_bf16) {
      Kernels bf16 = *avx512_kernels();
      bf16.name = "avx512-bf16";
      avx512_bf16_override(bf16);
      if (leaf7.amx_int8 && amx_compiled() && tiles_granted()) {
        Kernels amx = bf16;
        amx.name = "amx";
        amx_override(amx);
        found.push_back(amx);
      }
      found.push_back(bf16);
    }
    found.push_back(*avx512_kernels());
  }
  if (avx2 && leaf7.avx_vnni && avx2_vnni_kernels() != nullptr)
    found.push_back(*avx2_vnni_kernels());
  if (avx2 && avx2_kernels() != nullptr) found.push_back(*avx2_kernels());
#endif
  found.push_back(*portable_kernels());
#if defined(__x86_64__)
  for (Kernels& k : found) k.one_stream = __builtin_cpu_is("amd");
#endif
  return found;
}

}  // namespace

std::span<const Kernels> available_kernels() {
  static const std::vector<Kernels> found = detect();
  return found;
}

const Kernels* one_isa_kernels(std::string_view name) {
  static const std::optional<Kernels> kAmx = []() -> std::optional<Kernels> {
    const Kernels* amx = find_kernels("amx");
#if defined(__x86_64__)
    if (amx != nullptr && Leaf7().amx_bf16) {
      Kernels k = *amx;
      amx_one_isa_override(k);
      return k;
    }
#endif
    return std::nullopt;
  }();
  return kAmx && name == kAmx->name ? &*kAmx : nullptr;
}

const Kernels* find_kernels(std::string_view name) {
  for (const Kernels& k : available_kernels())
    if (name == k.name) return &k;
  return nullptr;
}

}  // namespace evalrun::engine::cpu
