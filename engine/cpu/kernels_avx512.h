// AVX-512F kernels; null when the compiler cannot target them.
#pragma once
#include "engine/cpu/kernels.h"

namespace evalrun::engine::cpu {
const Kernels* avx512_kernels();
}
