// The AVX2 kernels.
#pragma once
#include "engine/cpu/kernels/kernels.h"

namespace evalrun::engine::cpu {
// nullptr when this build has none.
const Kernels* avx2_kernels();       // AVX2, FMA, F16C
const Kernels* avx2_vnni_kernels();  // and AVX-VNNI
}  // namespace evalrun::engine::cpu
