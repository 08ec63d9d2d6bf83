// Memory of the emulated device, for tests of the emulator.
#pragma once
#include <gtest/gtest.h>

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

}  // namespace emulator::testing
