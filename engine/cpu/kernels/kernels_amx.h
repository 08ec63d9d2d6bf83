// The AMX kernels.
#pragma once
#include "engine/cpu/kernels/kernels.h"

namespace evalrun::engine::cpu {
bool amx_compiled();
// Replaces the product with one scale per channel by the one on AMX tiles. The processor must offer
// AMX-TILE and AMX-INT8, and the process must have been granted the tile state.
void amx_override(Kernels& kernels);
// bfloat16 products on tiles as well, whose sums are ordered as no other path orders them. The
// processor must offer AMX-BF16 besides.
void amx_one_isa_override(Kernels& kernels);
}  // namespace evalrun::engine::cpu
