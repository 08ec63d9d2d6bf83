// Threads of a grid: one block, one cluster of blocks after the other, or all at once.
#pragma once
#include <cuda_runtime.h>

#include <functional>

#include "tests/gpu/emulator/accesses.h"

namespace emulator {

uint64_t seed_of_environment();
// `kernel`: the function that `body` calls. `overlaps`: the launch may begin before the one before
// it has ended.
void run_grid(const void* kernel, dim3 grid, dim3 block, Together together, uint32_t cluster,
              size_t shared_bytes, bool overlaps, const std::function<void()>& body);

}  // namespace emulator
