// A barrier for all threads of a grid whose thread blocks run at the same time: of a cooperative
// launch (launch_together() in engine/cuda/runtime/check.h), which the driver refuses where they do
// not.
//
// As cooperative groups have it: a word of memory, zero before the first launch, to which every
// block adds. One of them adds 2^31 less than the others together, so that its highest bit turns
// when the last one has come, and at the next barrier turns back. Nobody has to reset it, and who
// comes early for the next barrier disturbs nobody who still waits for this one.
//
// What threads wrote before it, all threads read after it, by loads that are not ld.global.nc
// (load_once()): what is acquired is not in the first-level cache any more. Thread 0 releases and
// acquires for its block, whose threads __syncthreads() orders with it (PTX manual, "Memory
// Consistency Model", causality order).
#pragma once
#include "engine/cuda/kernels/device_code.h"

namespace evalrun::engine::cuda {

#if defined(__CUDACC__) || defined(EVALRUN_CUDA_EMULATED)
class GridBarrier {
 public:
  __device__ __forceinline__ explicit GridBarrier(unsigned* count) : count_(count) {}

  // Between the two a thread may do what neither needs others' results nor touches what others
  // read: ask for weights.
  __device__ __forceinline__ void arrive() {
    __syncthreads();
    if (threadIdx.x == 0) before_ = add_released(blockIdx.x == 0 ? kTurned - (gridDim.x - 1) : 1u);
  }
  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) wait_for_turn();
    __syncthreads();
  }

 private:
  static constexpr unsigned kTurned = 0x80000000u;
  // The emulator knows release and acquire as fences before and after. On a GPU __threadfence()
  // would also put all fences in one order, which nobody needs here and which takes longer.
  __device__ __forceinline__ unsigned add_released(unsigned n) const {
#if defined(__CUDA_ARCH__)
    unsigned before;
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(count_), "r"(n)
                 : "memory");
    return before;
#else
    __threadfence();
    return atomicAdd(count_, n);
#endif
  }
  __device__ __forceinline__ void wait_for_turn() const {
#if defined(__CUDA_ARCH__)
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(count_) : "memory");
    } while (((now ^ before_) & kTurned) == 0);
#elif defined(EVALRUN_CUDA_EMULATED)
    emulator::wait_for_change(count_, kTurned, before_);
    __threadfence();
#endif
  }
  unsigned* count_;
  unsigned before_ = 0;  // of thread 0
};
#endif

}  // namespace evalrun::engine::cuda
