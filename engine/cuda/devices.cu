#include <cuda_runtime.h>

#include "engine/cuda/devices.h"

namespace evalrun::engine::cuda {

DeviceList list_devices() {
  DeviceList list;
  list.compiled_in = true;
  list.runtime_version =
      std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess) {
    list.problem = cudaGetErrorString(e);
    return list;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    list.devices.push_back({i, p.name, p.major, p.minor, static_cast<int64_t>(p.totalGlobalMem)});
  }
  if (list.devices.empty()) list.problem = "no CUDA device";
  return list;
}

}  // namespace evalrun::engine::cuda
