// CUDA devices this build and machine can see; for `doctor` and `--device`. No CUDA header leaks
// out. What the names mean and which devices can be used: engine/devices.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace evalrun::engine::cuda {

struct Device {
  int index = 0;  // among those CUDA_VISIBLE_DEVICES leaves
  std::string name = {};
  int compute_major = 0, compute_minor = 0;  // compute capability
  int64_t memory_bytes = 0;
  std::string pci_bus_id = {};  // "0000:41:00.0", what NVML knows the device by
  bool ecc = false;             // memory with error correction, switched on
  int64_t cache_bytes = 0;      // L2
};

struct DeviceList {
  bool compiled_in = false;
  std::string runtime_version;  // of the toolkit this was built with, "13.0"; "" without CUDA
  std::string driver_version;   // newest CUDA the driver can run, "12.4"; "" = no driver
  bool old_driver = false;      // cudaErrorInsufficientDriver, and there is a driver
  std::string error;            // of CUDA, in its words, when the devices could not be listed
  std::vector<Device> devices;
};
bool compiled_in();                // asks neither driver nor device
const DeviceList& list_devices();  // looked up once; starts the driver
// Of the library that prefills (engine/cuda/dense.h), "13.1.0"; "none" where none starts.
std::string cublas_version();

}  // namespace evalrun::engine::cuda
