// Memory, streams and launches on the emulated device, for tests of the emulator.
#pragma once
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/gpu/emulator/include/emulator.h"

namespace emulator::testing {

// Device memory for n values, not cleared.
template <typename T>
struct OnDevice {
  T* p = nullptr;
  size_t n;
  explicit OnDevice(size_t count) : n(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(T)), cudaSuccess);
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    EXPECT_EQ(cudaMemcpy(p, values.data(), n * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~OnDevice() { (void)cudaFree(p); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  std::vector<T> values() const {
    std::vector<T> to(n);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(to.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return to;
  }
};

struct Pinned {
  int* p = nullptr;
  explicit Pinned(int value) {
    EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&p), sizeof(int)), cudaSuccess);
    *p = value;
  }
  ~Pinned() { (void)cudaFreeHost(p); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
};

struct OwnStream {
  cudaStream_t handle = nullptr;
  OwnStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess); }
  ~OwnStream() { (void)cudaStreamDestroy(handle); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  void wait() const { EXPECT_EQ(cudaStreamSynchronize(handle), cudaSuccess); }
};

template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                   A&&... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = grid, config.blockDim = block;
  config.dynamicSmemBytes = shared, config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
}

}  // namespace emulator::testing
