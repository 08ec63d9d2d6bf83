// Threads of a grid, one block or cluster of blocks after the other.
#pragma once
#include <cuda_runtime.h>

#include <functional>

namespace emulator {

uint64_t seed_of_environment();
// `kernel`: the function that `body` calls. `cluster`: thread blocks along x that run together, and
// see each other's shared memory. `overlaps`: the launch may begin before the one before it has
// ended.
void run_grid(const void* kernel, dim3 grid, dim3 block, uint32_t cluster, size_t shared_bytes,
              bool overlaps, const std::function<void()>& body);

}  // namespace emulator
