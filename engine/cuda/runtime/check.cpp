#include "engine/cuda/runtime/check.h"

#include "engine/base/error.h"

namespace evalrun::engine::cuda {

void throw_device_error(cudaError_t error, const char* what, const char* file, int line) {
  const std::string_view path(file);
  const std::string place = fmt::format("{}:{}", path.substr(path.rfind('/') + 1), line);
  const std::string text = fmt::format("CUDA error {} ({}) in {} at {}", cudaGetErrorName(error),
                                       cudaGetErrorString(error), what, place);
  int device = 0;
  (void)cudaGetDevice(&device);
  switch (error) {
    case cudaErrorMemoryAllocation:
      throw base::Error(base::ExitCode::kData, text,
                        "the GPU is out of memory: lower the context length, the rows of a step or "
                        "the weight format, or free the GPU of other programs (nvidia-smi)");
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      throw base::InternalError(text);  // of ours: the device goes on
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorNoKernelImageForDevice:
      throw base::usage_error(text, "build for this GPU: cmake --preset cuda-all");
    default:
      throw base::DeviceFault(fmt::format("cuda:{}", device), cudaGetErrorString(error),
                              fmt::format("{} ({}) at {}", what, cudaGetErrorName(error), place));
  }
}

LaunchObserver*& launch_observer() {
  static LaunchObserver* observer = nullptr;
  return observer;
}

void check_argument(bool holds, const char* what) { EVALRUN_CHECK(holds, "{}", what); }

}  // namespace evalrun::engine::cuda
