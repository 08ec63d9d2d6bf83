// Threads of a grid, one block after the other.
#pragma once
#include <cuda_runtime.h>

#include <functional>

namespace emulator {

uint64_t seed_of_environment();
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel);

}  // namespace emulator
