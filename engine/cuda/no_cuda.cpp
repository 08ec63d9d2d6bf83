#include "engine/cuda/devices.h"

namespace evalrun::engine::cuda {

DeviceList list_devices() {
  DeviceList list;
  list.problem = "this build has no CUDA (configure with nvcc >= 12 on PATH)";
  return list;
}

}  // namespace evalrun::engine::cuda
