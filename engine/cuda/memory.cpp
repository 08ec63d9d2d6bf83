#include "engine/cuda/memory.h"

#include <algorithm>

namespace evalrun::engine::cuda {

DeviceBuffer::DeviceBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  EVALRUN_CUDA(cudaMalloc(&data_, bytes));
  EVALRUN_CUDA(cudaMemset(data_, 0, bytes));
  // Streams of ours do not wait for the default one, on which this runs.
  EVALRUN_CUDA(cudaStreamSynchronize(nullptr));
}
void DeviceBuffer::upload(const void* from, size_t bytes) const {
  EVALRUN_CUDA(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice));
  EVALRUN_CUDA(cudaStreamSynchronize(nullptr));  // the copy may still be under way
}
DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) (void)cudaFree(data_);
}
bool DeviceBuffer::ensure(size_t bytes) {
  if (bytes <= bytes_) return false;
  // Half as much again, so that a context that grows row by row moves seldom; the old one first,
  // both may not fit.
  const size_t larger = std::max(bytes, bytes_ + bytes_ / 2);
  *this = DeviceBuffer();
  *this = DeviceBuffer(larger);
  return true;
}

PinnedBuffer::PinnedBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) EVALRUN_CUDA(cudaMallocHost(&data_, bytes));
}
PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) (void)cudaFreeHost(data_);
}
bool PinnedBuffer::ensure(size_t bytes) {
  if (bytes <= bytes_) return false;
  const size_t larger = std::max(bytes, bytes_ + bytes_ / 2);
  *this = PinnedBuffer();
  *this = PinnedBuffer(larger);
  return true;
}

}  // namespace evalrun::engine::cuda
