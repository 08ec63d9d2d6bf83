#include "engine/cuda/runtime/memory.h"

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace evalrun::engine::cuda {

void* DeviceKind::allocate(size_t bytes) {
  void* p = nullptr;
  EVALRUN_CUDA(cudaMalloc(&p, bytes));
  cudaError_t e = cudaMemset(p, 0, bytes);
  // Streams of ours do not wait for the default one, on which that runs.
  if (e == cudaSuccess) e = cudaStreamSynchronize(nullptr);
  if (e == cudaSuccess) return p;
  (void)cudaStreamSynchronize(nullptr);  // one that failed to wait is still clearing it
  release(p);
  throw_device_error(e, "clearing new memory", __FILE__, __LINE__);
}
void DeviceKind::release(void* p) { (void)cudaFree(p); }

void* PinnedKind::allocate(size_t bytes) {
  void* p = nullptr;
  const cudaError_t e = cudaMallocHost(&p, bytes);
  if (e == cudaErrorMemoryAllocation)
    throw base::Error(
        base::ExitCode::kData,
        fmt::format("no {} of page-locked memory for copies to the GPU", base::format_bytes(bytes)),
        "free memory of the host, or raise its limit (ulimit -l, the container's)");
  EVALRUN_CUDA(e);
  return p;
}
void PinnedKind::release(void* p) { (void)cudaFreeHost(p); }

template <typename Kind>
Buffer<Kind>::Buffer(size_t bytes)
    : data_(bytes == 0 ? nullptr : Kind::allocate(bytes)), bytes_(bytes) {}

template <typename Kind>
bool Buffer<Kind>::ensure(size_t bytes) {
  if (bytes <= bytes_) return false;
  // Half as much again, so that a context that grows row by row moves seldom, or what is needed
  // where that does not fit; the old one first, both may not fit.
  const size_t larger = bytes_ + bytes_ / 2;
  { const Buffer old = std::move(*this); }
  if (larger > bytes) {
    try {
      *this = Buffer(larger);
      return true;
    } catch (const base::Error& e) {
      if (e.code() != base::ExitCode::kData) throw;  // out of memory is that
    }
  }
  *this = Buffer(bytes);
  return true;
}

template <>
void DeviceBuffer::upload(const void* from, size_t bytes) const {
  const WaitOnError before_it_goes(nullptr);
  EVALRUN_CUDA(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice));
  EVALRUN_CUDA(cudaStreamSynchronize(nullptr));  // the copy may still be under way
}

template class Buffer<DeviceKind>;
template class Buffer<PinnedKind>;

}  // namespace evalrun::engine::cuda
