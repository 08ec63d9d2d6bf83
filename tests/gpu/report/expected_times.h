// Times that kernels are expected to take on a GPU, from what they do: a prediction, to stand
// beside what is measured. Its numbers were not fitted to measured times of kernels. Those of
// an H200 were known when its form was chosen.
//
// A launch takes
//   start + alone + work
// - work: the largest of three times. Bytes by the read bandwidth: weights, keys and values once,
//   and what is written to be read again. Instructions of all warps at three of four issue slots.
//   Operations of the tensor cores at 60 % of the dense peak, which mma.sync is assumed to have.
// - alone: what a thread block does before and after its bytes flow, which nothing hides when it
//   has its multiprocessor to itself: its instructions, one after the other, at four cycles each,
//   and its dependent trips to memory, 280 cycles to the L2 and 700 to the DRAM. Once, or, where
//   blocks follow each other: waves / blocks that share a multiprocessor.
// - start: 1 us for a launch; 0.3 us within a graph whose launches overlap, and then what comes
//   before the kernel's wait (engine/cuda/kernels/device_code.h) is not counted either.
// Instructions are counted in the machine code of sm_90a (nvcc 13.0, 2026-11-28), trips in the
// source. 280, 700, four cycles, 60 %, three of four slots, 1 and 0.3 us are assumptions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/weight_matrix.h"
#include "tests/gpu/report/expected_launch.h"

namespace evalrun::engine::gpu_report {

// H200 with the bandwidth and the peak that were measured on one, others with their vendors' peak
// and 93 % of their vendors' bandwidth, which is what the H200 reached of its own.
std::vector<GpuFacts> known_gpus();

struct ExpectedStep {
  std::vector<ExpectedKernel> kernels;
  double alone_us() const;  // all launches
  double in_graph_us() const;
  double alone_us(std::string_view kernel) const;  // those of this name
};
// A tree of `rows` after `context` tokens that asks for its likeliest tokens. Empty for weights in
// float32, of which nothing is predicted.
ExpectedStep expected_step(const ModelConfig& config, WeightFormat format, int rows, int context,
                           const GpuFacts& gpu);

// The same step with its layers by one kernel (EVALRUN_CUDA_PATH=persistent). Of a phase:
//   barrier + its way as above + the bytes of what its thread blocks multiply behind two tiles
// Weights of a block's first tile are there when the barrier ends, those of its second in the L2. A
// barrier of the grid is 1.1 us, an assumption: a fence, an addition and a read that all go to the
// L2, one after the other. Ways are those of the separate kernels, less what one block keeps for
// all layers.
struct ExpectedPhase {
  std::string what;
  double us = 0;  // with the barrier before it
};
constexpr double kGridBarrierUs = 1.1;
// Of one layer. Empty for steps that go another way.
std::vector<ExpectedPhase> expected_phases(const ModelConfig& config, WeightFormat format, int rows,
                                           int context, const GpuFacts& gpu,
                                           double barrier_us = kGridBarrierUs);
// In a graph, with what comes before and after the layers; 0: it goes another way.
double expected_persistent_us(const ModelConfig& config, WeightFormat format, int rows, int context,
                              const GpuFacts& gpu, double barrier_us = kGridBarrierUs);

// Steps of published shapes on the known GPUs, and the kernels of one layer: Markdown, as in
// docs/performance.md.
std::string expected_tables();

}  // namespace evalrun::engine::gpu_report
