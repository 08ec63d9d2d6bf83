// The time of one launch by the model of expected_times.h: what it assumes, and its arithmetic.
#pragma once
#include <cmath>
#include <string>
#include <string_view>

namespace evalrun::engine::gpu_report {

struct GpuFacts {
  std::string name;
  int multiprocessors = 0;
  double ghz = 0;               // of the multiprocessors
  double read_bytes_per_s = 0;  // by a kernel that only reads
  double flops_per_s = 0;       // dense bfloat16; 0: not known
  bool overlaps = false;        // a launch may begin while the one before it ends
};

// The way of one warp through a kernel, without the loop over its bytes.
struct Way {
  double before = 0, after = 0;           // instructions, by its wait for the kernel before
  int dram_before = 0, dram = 0, l2 = 0;  // dependent trips to memory
  int resident = 1;                       // thread blocks that share a multiprocessor
  int l2_before = 0;
};

struct ExpectedKernel {
  std::string kernel, what;                       // "narrow_product", "gate and up"
  int launches = 0;                               // of a step
  double bytes = 0, instructions = 0, flops = 0;  // of a launch; instructions by warps
  double alone_us = 0;                            // a launch by itself
  double in_graph_us = 0;                         // what it adds to a step that runs as a graph
  std::string_view bound;  // what its work is: "bytes", "instructions" or "tensor cores"
  Way way;
  double times = 1;  // that the way counts
  // Of hopper_product, where `bound` is "copying warp" or "multiplying warps": what such a warp
  // does in its loop, one after the other.
  double loop_instructions = 0;
  int loop_l2 = 0;
};

constexpr double kL2Cycles = 280, kDramCycles = 700, kSerialCycles = 4;
constexpr double kIssueSlots = 4 * 0.75;  // of a multiprocessor
constexpr double kMmaShare = 0.6;
constexpr double kStartUs = 1, kOverlappedStartUs = 0.3;

inline double ceil_of(double a, double b) { return std::ceil(a / b); }

ExpectedKernel launch_of(const char* kernel, const char* what, int launches, double blocks,
                         const Way& way, double bytes, double instructions, double flops,
                         const GpuFacts& gpu);

// Its in_graph_us as a sum that a calculator takes, in us: "1 + (4 * 650 + 700 * 16 + 280 * 4) /
// 1980 + 0.04 / 4.48".
std::string arithmetic_of(const ExpectedKernel& launch, const GpuFacts& gpu);

}  // namespace evalrun::engine::gpu_report
