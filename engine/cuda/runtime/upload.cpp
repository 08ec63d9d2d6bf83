#include "engine/cuda/runtime/upload.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::engine::cuda {

Upload::~Upload() {
  if (std::ranges::any_of(halves_, &Half::under_way)) (void)cudaStreamSynchronize(stream_);
  for (const Half& half : halves_)
    if (half.copied != nullptr) (void)cudaEventDestroy(half.copied);
}

// False where there is no page-locked memory to be had.
bool Upload::make(Half& half) {
  try {
    half.memory = PinnedBuffer(piece_);
  } catch (const base::Error& e) {
    if (e.code() != base::ExitCode::kData) throw;  // out of memory is that
    return false;
  }
  EVALRUN_CUDA(cudaEventCreate(&half.copied));
  return true;
}

void Upload::copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  stream_ = stream;
  for (size_t at = 0; at < bytes;) {
    auto* there = static_cast<unsigned char*>(to) + at;
    const auto* here = static_cast<const unsigned char*>(from) + at;
    Half& half = halves_[next_];
    if (!straight_ && half.copied == nullptr) straight_ = !make(half);
    if (straight_) {
      EVALRUN_CUDA(cudaMemcpyAsync(there, here, bytes - at, cudaMemcpyHostToDevice, stream));
      return;
    }
    if (half.under_way) EVALRUN_CUDA(cudaEventSynchronize(half.copied));
    const size_t n = std::min(piece_, bytes - at);
    std::memcpy(half.memory.as<void>(), here, n);
    half.under_way = true;
    EVALRUN_CUDA(cudaMemcpyAsync(there, half.memory.as<void>(), n, cudaMemcpyHostToDevice, stream));
    EVALRUN_CUDA(cudaEventRecord(half.copied, stream));
    next_ = (next_ + 1) % halves_.size();
    at += n;
  }
}

void Upload::waited() {
  for (Half& half : halves_) half.under_way = false;
}

}  // namespace evalrun::engine::cuda
