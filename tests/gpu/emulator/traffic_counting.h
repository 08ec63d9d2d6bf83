// How accesses.cpp tells traffic.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator::traffic {

enum class Memory { kShared, kGlobal };

bool counting();
void begin_grid(size_t threads);
void record(int thread, uint32_t code, const void* p, size_t bytes, bool write, Memory memory);
void lanes_meet(int warp);  // what they ask for from here on belongs to other requests

}  // namespace emulator::traffic
