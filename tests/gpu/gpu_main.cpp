// The CUDA tests on a real GPU. Without one there is nothing to run, which is said and no failure.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "engine/cuda/dense.h"
#include "engine/cuda/runtime/devices.h"
#include "engine/devices.h"

namespace {

// A device fault fails every later test of its process, which says nothing about them: the process
// ends, and tests/gpu/run goes on after the test.
constexpr int kFault = 8;
class StopAtFault final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& test) override {
    const cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess) return;
    std::printf("[  FAULT   ] %s.%s: %s (%s)\n", test.test_suite_name(), test.name(),
                cudaGetErrorName(error), cudaGetErrorString(error));
    std::fflush(stdout);
    _exit(kFault);
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const evalrun::engine::cuda::DeviceList& list = evalrun::engine::cuda::list_devices();
  if (const std::string why = evalrun::engine::gpu_obstacle(list).why; !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 0;
  }
  std::printf("GPU: %s, compute capability %d.%d\n", list.devices[0].name.c_str(),
              list.devices[0].compute_major, list.devices[0].compute_minor);
  setenv("EVALRUN_TEST_ALL", "1", 1);  // a GPU is quick (tests/sample.h)
  // Tests leave it out unless they are about it (backend_test.cpp). Under a sanitizer it is not
  // even looked for: its half a gigabyte of code would be most of the time.
  if (argc > 1 && std::string_view(argv[1]) == "--without-cublas") {
    std::printf("cuBLAS: left out\n");
  } else {
    setenv("EVALRUN_CUDA_CUBLAS", "1", 1);
    std::printf("cuBLAS: %s\n",
                evalrun::engine::cuda::Dense::find(nullptr) ? "found" : "not found");
  }
  setenv("EVALRUN_CUDA_CUBLAS", "0", 1);
  ::testing::UnitTest::GetInstance()->listeners().Append(new StopAtFault);
  return RUN_ALL_TESTS();
}
