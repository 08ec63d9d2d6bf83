// CUDA devices this build and machine can see; for `doctor` and `--device`. No CUDA header leaks
// out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace evalrun::engine::cuda {

struct Device {
  int index = 0;
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int64_t memory_bytes = 0;
};

struct DeviceList {
  bool compiled_in = false;
  std::string runtime_version;  // "13.0", "" without CUDA
  std::string problem;          // why the list is empty ("no CUDA driver", ...)
  std::vector<Device> devices;
};
DeviceList list_devices();

}  // namespace evalrun::engine::cuda
