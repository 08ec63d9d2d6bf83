// The AVX-512 kernels.
#pragma once
#include "engine/cpu/kernels/kernels.h"

namespace evalrun::engine::cpu {
// nullptr when this build has none. The processor must offer AVX-512 F, BW, DQ, VL and VNNI.
const Kernels* avx512_kernels();
// Replaces the bfloat16 kernels by those for AVX512_BF16.
void avx512_bf16_override(Kernels& kernels);
}  // namespace evalrun::engine::cpu
