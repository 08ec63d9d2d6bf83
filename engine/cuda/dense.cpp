#include "engine/cuda/dense.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/base/error.h"
#include "engine/cuda/kernels/pack.h"
#include "engine/cuda/runtime/devices.h"

namespace evalrun::engine::cuda {
namespace {

// Of cublas_api.h and library_types.h; the same in CUDA 12 and 13.
constexpr int kOpN = 0, kOpT = 1;
constexpr int kFloat32 = 0, kBfloat16 = 14;
constexpr int kCompute32 = 68;
constexpr int kDefaultAlgorithm = -1;

// After a failure the handle is of no use, and often neither is the device.
void check_status(int status, const char* call) {
  if (status == 0) return;
  int device = 0;
  (void)cudaGetDevice(&device);
  throw base::DeviceFault(fmt::format("cuda:{}", device), fmt::format("cuBLAS status {}", status),
                          fmt::format("{} (EVALRUN_CUDA_CUBLAS=0 prefills without cuBLAS)", call));
}

}  // namespace

struct Dense::Library {
  void* library = nullptr;
  int (*property)(int, int*) = nullptr;
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set_stream)(void*, cudaStream_t) = nullptr;
  int (*set_workspace)(void*, void*, size_t) = nullptr;
  int (*gemm)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int,
              int, const void*, void*, int, int, int, int) = nullptr;

  bool load() {
#ifdef EVALRUN_CUDA_EMULATED
    property = emulator::cublas_property, create = emulator::cublas_create,
    destroy = emulator::cublas_destroy, set_stream = emulator::cublas_set_stream,
    set_workspace = emulator::cublas_set_workspace, gemm = emulator::cublas_gemm;
    return true;
#else
    // That of this build's toolkit first: the other one may want a newer driver.
    constexpr bool kNewer = CUDART_VERSION >= 13000;
    for (const char* name : {kNewer ? "libcublas.so.13" : "libcublas.so.12",
                             kNewer ? "libcublas.so.12" : "libcublas.so.13"})
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)> >(dlsym(library, name));
      return function != nullptr;
    };
    return get(property, "cublasGetProperty") && get(create, "cublasCreate_v2") &&
           get(destroy, "cublasDestroy_v2") && get(set_stream, "cublasSetStream_v2") &&
           get(set_workspace, "cublasSetWorkspace_v2") && get(gemm, "cublasGemmEx");
#endif
  }
};

Dense::Dense(cudaStream_t stream) : stream_(stream), library_(std::make_unique<Library>()) {}

namespace {

bool is_wanted() {
  const char* wanted = std::getenv("EVALRUN_CUDA_CUBLAS");
  return wanted == nullptr || std::string_view(wanted) != "0";
}

}  // namespace

std::string Dense::version() {
  Library library;
  void* handle = nullptr;
  if (!is_wanted() || !library.load() || library.create(&handle) != 0) return "none";
  (void)library.destroy(handle);
  std::string text;
  for (const int part : {0, 1, 2}) {  // MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
    int number = 0;
    if (library.property(part, &number) != 0) return "unknown";
    text += (part == 0 ? "" : ".") + std::to_string(number);
  }
  return text;
}
std::string cublas_version() { return Dense::version(); }

std::unique_ptr<Dense> Dense::find(cudaStream_t stream) {
  if (!is_wanted()) return nullptr;
  std::unique_ptr<Dense> dense(new Dense(stream));
  if (!dense->library_->load()) return nullptr;
  // One that does not start here (its own libraries missing, no memory for it) is none.
  if (dense->library_->create(&dense->handle_) != 0) return nullptr;
  check_status(dense->library_->set_stream(dense->handle_, stream), "cublasSetStream");
  dense->workspace_ = DeviceBuffer(kWorkspaceBytes);
  check_status(
      dense->library_->set_workspace(dense->handle_, dense->workspace_.as<void>(), kWorkspaceBytes),
      "cublasSetWorkspace");
  return dense;
}

Dense::~Dense() {
  if (handle_ != nullptr) (void)library_->destroy(handle_);
  // The library stays loaded: it leaves threads and memory of its own behind.
}

size_t Dense::unpacked_bytes(const MatrixRef& w) {
  if (w.storage == WeightStorage::kBf16) return 0;
  return static_cast<size_t>(w.tiles) * kTile * static_cast<size_t>(w.blocks) * kBlock * 2;
}

void Dense::multiply(const MatrixRef& w, const void* x, int rows, float* sums, bool add,
                     DeviceBuffer& unpacked) {
  const int outputs = w.tiles * kTile, width = w.blocks * kBlock;
  const void* weights = w.codes;
  if (w.storage != WeightStorage::kBf16) {
    unpacked.ensure(unpacked_bytes(w));
    unpack(w, unpacked.as<uint16_t>(), stream_);
    weights = unpacked.as<void>();
  }
  // Columns in cuBLAS are rows here: sums^T = W x^T.
  const float one = 1, before = add ? 1.0f : 0.0f;
  check_status(library_->gemm(handle_, kOpT, kOpN, outputs, rows, width, &one, weights, kBfloat16,
                              width, x, kBfloat16, width, &before, sums, kFloat32, outputs,
                              kCompute32, kDefaultAlgorithm),
               "cublasGemmEx");
}

}  // namespace evalrun::engine::cuda
