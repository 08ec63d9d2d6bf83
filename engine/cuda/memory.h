// Device and pinned host memory that frees itself.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/cuda/check.h"

namespace evalrun::engine::cuda {

// Device memory, cleared.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  // From any host memory; there when this returns.
  void upload(const void* from, size_t bytes) const;
  // At least so large, without its contents. True when it moved: what holds its address is stale.
  bool ensure(size_t bytes);

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Page-locked host memory: the only kind that copies run beside the host's work from.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  bool ensure(size_t bytes);

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace evalrun::engine::cuda
