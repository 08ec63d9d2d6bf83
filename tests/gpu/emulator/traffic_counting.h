// How accesses.cpp tells traffic.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator::traffic {

// kCluster + n: of block n of the cluster, by a thread of another.
enum Memory : uint32_t { kShared, kGlobal, kCluster };

bool counting();
void begin_grid(size_t threads);
void record(int thread, uint32_t code, const void* p, size_t bytes, bool write, uint32_t memory);
void record_bulk_copy(uint32_t code, const void* from, size_t bytes);
void lanes_meet(int warp);  // what they ask for from here on belongs to other requests

}  // namespace emulator::traffic
