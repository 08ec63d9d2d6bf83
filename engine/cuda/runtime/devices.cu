#include <cuda_runtime.h>

#include "engine/cuda/runtime/devices.h"

namespace evalrun::engine {
namespace cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

DeviceList find_devices() {
  DeviceList list;
  list.compiled_in = true;
  list.runtime_version = version_text(CUDART_VERSION);
  int driver = 0;  // stays 0 without one
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
    list.driver_version = version_text(driver);
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess) {
    // Without any driver the runtime calls it too old.
    list.old_driver = e == cudaErrorInsufficientDriver && driver > 0;
    if (e != cudaErrorNoDevice) list.error = cudaGetErrorString(e);
    (void)cudaGetLastError();  // nobody else shall find it
    return list;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    if (const cudaError_t e = cudaGetDeviceProperties(&p, i); e != cudaSuccess) {
      list.error = cudaGetErrorString(e);
      (void)cudaGetLastError();
      continue;
    }
    char bus[32] = "";
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, i) != cudaSuccess) bus[0] = '\0';
    list.devices.push_back({.index = i,
                            .name = p.name,
                            .compute_major = p.major,
                            .compute_minor = p.minor,
                            .memory_bytes = static_cast<int64_t>(p.totalGlobalMem),
                            .pci_bus_id = bus,
                            .ecc = p.ECCEnabled != 0,
                            .cache_bytes = p.l2CacheSize});
  }
  return list;
}

}  // namespace

bool compiled_in() { return true; }

const DeviceList& list_devices() {
  static const DeviceList list = find_devices();
  return list;
}

}  // namespace cuda

}  // namespace evalrun::engine
