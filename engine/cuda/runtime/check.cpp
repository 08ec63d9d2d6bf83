#include "engine/cuda/runtime/check.h"

#include <cstdlib>
#include <string_view>

#include "engine/base/error.h"
#include "engine/cuda/runtime/devices.h"

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
    case cudaErrorIllegalState:
    case cudaErrorNotReady:
    case cudaErrorCooperativeLaunchTooLarge:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorInvalidClusterSize:
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

bool launches_overlap() {
  static const bool wanted = [] {
    const char* overlap = std::getenv("EVALRUN_CUDA_OVERLAP");
    return overlap == nullptr || std::string_view(overlap) != "0";
  }();
  if (!wanted) return false;
#if defined(EVALRUN_CUDA_EMULATED)
  return true;  // what kernels must keep to is checked there
#else
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  for (const Device& d : list_devices().devices)
    if (d.index == device) return d.compute_major >= 9;
  return false;
#endif
}

LaunchObserver*& launch_observer() {
  static LaunchObserver* observer = nullptr;
  return observer;
}

void check_argument(bool holds, const char* what) { EVALRUN_CHECK(holds, "{}", what); }

}  // namespace evalrun::engine::cuda
