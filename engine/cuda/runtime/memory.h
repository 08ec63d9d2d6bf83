// Device and pinned host memory that frees itself.
#pragma once
#include <cstddef>
#include <exception>
#include <utility>

#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {

// Memory of one kind; Kind::allocate(bytes) gives it, Kind::release(p) takes it back.
template <typename Kind>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  ~Buffer() {
    if (data_ != nullptr) Kind::release(data_);
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  // At least so large, without its contents. True when it moved: what holds its address is stale.
  bool ensure(size_t bytes);
  // Device memory only. From any host memory; there when this returns.
  void upload(const void* from, size_t bytes) const;

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

struct DeviceKind {  // cleared
  static void* allocate(size_t bytes);
  static void release(void* p);
};
struct PinnedKind {  // page-locked: the only kind that copies run beside the host's work from
  static void* allocate(size_t bytes);
  static void release(void* p);
};
using DeviceBuffer = Buffer<DeviceKind>;
using PinnedBuffer = Buffer<PinnedKind>;

template <>
void DeviceBuffer::upload(const void* from, size_t bytes) const;

// Declared after buffers of a block: when an exception leaves it, the stream is waited for before
// they are freed. That cudaFree waits by itself is no promise ("may", says its manual).
class WaitOnError {
 public:
  explicit WaitOnError(cudaStream_t stream) : stream_(stream) {}
  ~WaitOnError() {
    if (std::uncaught_exceptions() > before_) (void)cudaStreamSynchronize(stream_);
  }
  WaitOnError(const WaitOnError&) = delete;
  WaitOnError& operator=(const WaitOnError&) = delete;

 private:
  const cudaStream_t stream_;
  const int before_ = std::uncaught_exceptions();
};

}  // namespace evalrun::engine::cuda
