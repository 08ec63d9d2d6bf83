// What the kernels of one forward ask of memory, counted on the emulated device
// (emulator/traffic.h) with kernels that tell their accesses.
#pragma once
#include <map>
#include <string>

#include "tests/gpu/emulator/traffic.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {

struct KernelTraffic {
  int launches = 0;
  emulator::traffic::Counts counts;
};
struct StepTraffic {
  std::map<std::string, KernelTraffic> kernels;  // by the names of their launches
  size_t floor = 0;  // bytes of all weights, and of the keys and values of the context
};

// A tree of `rows` after `context` tokens, the likeliest token of each asked for.
StepTraffic count_step(const Shape& shape, int rows, int context);

}  // namespace evalrun::engine::gpu_report
