// Errors of the CUDA runtime as ours, and kernel launches.
#pragma once
#include <cuda_runtime.h>

#include <utility>

namespace evalrun::engine::cuda {

// Throws base::Error with what failed, where, and a remedy; for faults that end the use of the
// device in this process, with exit code 8.
[[noreturn]] void throw_device_error(cudaError_t error, const char* what, const char* file,
                                     int line);

// Told of every kernel launched or captured and, by kGraphLaunch, of every graph. None by default.
struct LaunchObserver {
  virtual ~LaunchObserver() = default;
  virtual void before(const char* kernel, cudaStream_t stream) = 0;
  virtual void after(const char* kernel, cudaStream_t stream) = 0;
};
LaunchObserver*& launch_observer();

// Whether a launch may begin while the kernel before it on its stream still runs: on the current
// device, from compute capability 9.0 on; EVALRUN_CUDA_OVERLAP=0 switches it off. Every kernel
// begins with wait_for_previous() (kernels/device_code.h), so results do not change.
bool launches_overlap();

// A broken invariant of ours. For kernel files: nvcc cannot read fmt's checked format strings.
void check_argument(bool holds, const char* what);

#if defined(__CUDACC__) || defined(EVALRUN_CUDA_EMULATED)
// Which of a launch's thread blocks run at the same time: `cluster` of them along x (compute
// capability 9.0), or all. The driver refuses a launch of more than fit the device then. Such a one
// never begins before the kernel before it has ended.
struct BlocksTogether {
  int cluster = 0;
  bool all = false;
};
template <typename... P, typename... A>
void launch_with(const char* what, void (*kernel)(P...), dim3 grid, BlocksTogether together,
                 int threads, size_t shared, cudaStream_t stream, A&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  config.numAttrs = 0;
  if (together.all) {
    cudaLaunchAttribute& cooperative = attributes[config.numAttrs++];
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
  } else if (launches_overlap()) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (together.cluster > 0) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(together.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  LaunchObserver* observer = launch_observer();
  if (observer != nullptr) observer->before(what, stream);
  const cudaError_t e = cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
  if (observer != nullptr) observer->after(what, stream);
  if (e != cudaSuccess) throw_device_error(e, what, __FILE__, __LINE__);
}
template <typename... P, typename... A>
void launch_in_clusters(const char* what, void (*kernel)(P...), dim3 grid, int cluster, int threads,
                        size_t shared, cudaStream_t stream, A&&... arguments) {
  launch_with(what, kernel, grid, {.cluster = cluster}, threads, shared, stream,
              std::forward<A>(arguments)...);
}
template <typename... P, typename... A>
void launch_together(const char* what, void (*kernel)(P...), dim3 grid, int threads, size_t shared,
                     cudaStream_t stream, A&&... arguments) {
  launch_with(what, kernel, grid, {.all = true}, threads, shared, stream,
              std::forward<A>(arguments)...);
}
template <typename... P, typename... A>
void launch(const char* what, void (*kernel)(P...), dim3 grid, int threads, size_t shared,
            cudaStream_t stream, A&&... arguments) {
  launch_with(what, kernel, grid, {}, threads, shared, stream, std::forward<A>(arguments)...);
}
#endif

}  // namespace evalrun::engine::cuda

#define EVALRUN_CUDA(call)                                                                   \
  do {                                                                                       \
    if (const cudaError_t evalrun_error = (call); evalrun_error != cudaSuccess) [[unlikely]] \
      ::evalrun::engine::cuda::throw_device_error(evalrun_error, #call, __FILE__, __LINE__); \
  } while (0)
