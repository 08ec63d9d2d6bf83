// The kernels for any processor.
#pragma once
#include "engine/cpu/kernels/kernels.h"

namespace evalrun::engine::cpu {
const Kernels* portable_kernels();
}  // namespace evalrun::engine::cpu
