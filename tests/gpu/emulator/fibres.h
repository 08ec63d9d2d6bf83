// Threads of a grid, one block after the other.
#pragma once
#include <cuda_runtime.h>

#include <functional>

namespace emulator {

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel);

}  // namespace emulator
