// A CUDA device that is the calling thread: kernels compiled as C++ run on the CPU, thread by
// thread, so that CI can run the CUDA engine without a GPU. Made to find mistakes:
//   - threads of a block are fibres, run in an order that a seed shuffles between barriers; blocks
//     run in shuffled order too. A barrier that not all threads reach, lanes of a warp at different
//     collectives, threads that leave while others wait: an abort that says where.
//   - streams run when somebody waits for them and not before; page-locked memory is read when the
//     copy runs. Two streams know nothing of each other but what cudaStreamWaitEvent says.
//   - device and shared memory starts as not-a-number and has guard zones before and after;
//     device memory lately freed is watched for writes.
//   - memory that is freed, and a stream, event or graph that is destroyed, while queued work may
//     use it: an abort that names both (runtime.h).
//   - captures refuse what the driver refuses (captures.cpp).
//   - any call can be made to fail.
// Programs are told by their environment, at the first call; not by EVALRUN_ variables, which are
// settings of what is measured:
//   CUDA_EMULATOR_SEED    order of threads and blocks; 1 without it, 0: natural
//   CUDA_EMULATOR_MEMORY  bytes of the device
//   CUDA_EMULATOR_FAIL    N or N:sticky: call number N (from 0) fails with
//                            cudaErrorIllegalAddress, once or with all that follow
//   CUDA_EMULATOR_MMA     hopper or ampere: tensor cores as published (tests/gpu/tensor_cores.h);
//                         exact sums without it. Of mma and of wgmma
//   CUDA_EMULATOR_CAPABILITY  compute capability that the device says it has: 80 without it, or 90.
//                         Instructions of 9.0 (emulated_hopper.h) work with either
//   CUDA_EMULATOR_MULTIPROCESSORS  that it says it has, 16 without it
// Kernels compiled with -fsanitize=thread have every access to memory looked at (accesses.h) or
// counted (traffic.h). What it does not show: the hardware's own order of accesses, two streams at
// once, speed.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace emulator {

// 0: natural order.
void set_schedule_seed(uint64_t seed);
void reset_from_environment();  // as if the process had just started
void set_device_count(int n);
void set_device_memory(size_t bytes);
void set_device_capability(int capability);  // 80, 90
void set_device_multiprocessors(int n);
size_t live_device_bytes();
// The n-th call from now on (0: the next) fails with this error; a sticky one fails all that
// follow.
void fail_after(int n, cudaError_t error, bool sticky);
bool clear_fault();  // whether it was still to come
// The stand-in for cuBLAS writes nothing while it lives: for counts that do not depend on values.
class WithoutCublas {
 public:
  WithoutCublas();
  ~WithoutCublas();
  WithoutCublas(const WithoutCublas&) = delete;
  WithoutCublas& operator=(const WithoutCublas&) = delete;
};
long kernel_launches();  // outside graphs
long graph_launches();
long waits();  // of the host, for streams, events or the device

}  // namespace emulator
