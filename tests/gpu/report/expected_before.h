// What the same model (expected_times.h) says of the kernels of commit 0a5732b, 2026-11-24, the
// state before any GPU had run the engine; and both beside the goals of docs/performance.md.
//
// The kernels of a step had the same names and were as many. None began before the one in front of
// it had ended, so a launch's start is 1 us, and all of its way counts. Instructions are counted in
// the machine code of sm_90a (nvcc 13.0.88, 2026-11-28), trips to memory in it and in the source.
#pragma once
#include <string>

#include "tests/gpu/report/expected_times.h"

namespace evalrun::engine::gpu_report {

// As expected_step(). Of weights in bf16, int8 and q4 with 1 to 16 rows, and of 33 to 64 rows where
// all matrices are of bf16 and above 2 M weights: what the goals ask for. Empty for others.
ExpectedStep expected_step_before(const ModelConfig& config, WeightFormat format, int rows,
                                  int context, const GpuFacts& gpu);

// The goals' table, before and after; the same by kernel; and every launch's arithmetic. Markdown,
// as in docs/performance.md.
std::string before_and_after_tables();

}  // namespace evalrun::engine::gpu_report
