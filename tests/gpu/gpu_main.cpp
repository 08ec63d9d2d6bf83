// The CUDA tests on a real GPU. Without one there is nothing to run, which is said and no failure.
#include <gmock/gmock.h>

#include <cstdio>

#include "engine/cuda/devices.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const evalrun::engine::cuda::DeviceList& list = evalrun::engine::cuda::list_devices();
  if (list.devices.empty()) {
    std::printf("SKIPPED: no GPU (%s)\n", list.error.c_str());
    return 0;
  }
  std::printf("GPU: %s, compute capability %d.%d\n", list.devices[0].name.c_str(),
              list.devices[0].compute_major, list.devices[0].compute_minor);
  return RUN_ALL_TESTS();
}
