// What the model of expected_times.h says of products by EVALRUN_CUDA_PATH=hopper
// (engine/cuda/kernels/hopper_product.cu). A prediction; no GPU has run them.
//
// A thread block has its multiprocessor to itself and stays for the whole launch. So
//   start + its begin + work + its last end
// - begin: mbarriers, a barrier of the cluster, the first weights, which come before its wait for
//   the kernel before; then its inputs, eight loads at a time.
// - work: the largest of three times as of other kernels: bytes, without partial sums, which stay
//   in shared memory; instructions and operations of the fullest thread block.
// - end: 64 outputs of a warpgroup meet in the cluster. Three trips: a fence of the whole GPU
//   (MEMBAR.ALL.GPU in the machine code), the arrival in another thread block, a fence for the next
//   64. The last end has the cluster's barrier after it: two more. During the others the ring
//   keeps bytes flowing: they are counted in the loops below, and their instructions in work.
// - With `loop_cycles` an instruction, work is not less than two loops by themselves, as only the
//   other warps of the thread block run beside them: that of the warp that copies, and that of a
//   warp that multiplies, with its ends but the last. 0: free, as of other kernels. Four cycles are
//   those of instructions one after the other elsewhere; two lie between.
//
// Assumptions beside the model's: a trip to another thread block of the cluster takes as long as
// one to the L2. wgmma has the 60 % of mma.sync, counted with rows that fill its columns: a
// warpgroup waits for every block or two of inputs, so it is not at its peak. As many clusters of
// eight run as multiprocessors hold. Waits for wgmma are not counted. Instructions are counted in
// the machine code of sm_90a (nvcc 13.0.88, 2026-11-28).
#pragma once
#include <string>

#include "tests/gpu/report/expected_times.h"

namespace evalrun::engine::gpu_report {

// As expected_step(). Matrices that the path leaves to the portable kernels are theirs here, too.
ExpectedStep expected_hopper_step(const ModelConfig& config, WeightFormat format, int rows,
                                  int context, const GpuFacts& gpu, double loop_cycles = 0);

// Llama-2-7B on the H200 beside the other path; its products; their arithmetic. Markdown, as in
// docs/performance.md.
std::string expected_hopper_tables();

}  // namespace evalrun::engine::gpu_report
