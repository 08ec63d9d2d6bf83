#include "engine/cuda/check.h"

#include "engine/base/error.h"

namespace evalrun::engine::cuda {

void throw_device_error(cudaError_t error, const char* what, const char* file, int line) {
  const std::string_view path(file);
  const std::string text =
      fmt::format("CUDA error {} ({}) in {} at {}:{}", cudaGetErrorName(error),
                  cudaGetErrorString(error), what, path.substr(path.rfind('/') + 1), line);
  switch (error) {
    case cudaErrorMemoryAllocation:
      throw base::Error(base::ExitCode::kData, text,
                        "the GPU is out of memory: lower the context length, the rows of a step or "
                        "the weight format, or free the GPU of other programs (nvidia-smi)");
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
      throw base::InternalError(text);  // of ours: the device goes on
    case cudaErrorNoKernelImageForDevice:
      throw base::usage_error(text, "build for this GPU: cmake --preset cuda-all");
    default:
      throw base::Error(static_cast<base::ExitCode>(8), text,
                        "the device cannot be used by this process any more; what was measured is "
                        "stored. Run the same command again: it resumes");
  }
}

void check_argument(bool holds, const char* what) { EVALRUN_CHECK(holds, "{}", what); }

}  // namespace evalrun::engine::cuda
