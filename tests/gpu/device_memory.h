// Test data on the device and back.
#pragma once
#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "engine/cuda/runtime/memory.h"

namespace evalrun::engine::cuda::testing {

template <typename T>
DeviceBuffer on_device(const std::vector<T>& values) {
  DeviceBuffer b(values.size() * sizeof(T));
  b.upload(values.data(), b.bytes());
  return b;
}
template <typename T>
std::vector<T> to_host(const DeviceBuffer& b, size_t n) {
  std::vector<T> values(n);
  EVALRUN_CUDA(cudaDeviceSynchronize());
  EVALRUN_CUDA(cudaMemcpy(values.data(), b.as<void>(), n * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

}  // namespace evalrun::engine::cuda::testing
