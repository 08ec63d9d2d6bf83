// Large copies from any host memory to the device, by way of two page-locked buffers in turns: the
// host fills one while the device copies from the other. Of pageable memory the driver makes such
// pieces itself, but small ones, and the host waits for each.
#pragma once
#include <array>
#include <cstddef>

#include "engine/cuda/runtime/memory.h"

namespace evalrun::engine::cuda {

class Upload {
 public:
  static constexpr size_t kPiece = size_t{32} << 20;
  // To the current device. `piece`: bytes of a buffer, which is made when it is needed. Without
  // memory for that, copies go straight from where the host has them.
  explicit Upload(size_t piece = kPiece) : piece_(piece) {}
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Queued on `stream`, one for all copies, which outlives this. `from` has been read when this
  // returns.
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream);
  // The stream has run.
  void waited();

 private:
  struct Half {
    PinnedBuffer memory;
    cudaEvent_t copied = nullptr;
    bool under_way = false;
  };
  bool make(Half& half);

  const size_t piece_;
  std::array<Half, 2> halves_;
  size_t next_ = 0;
  bool straight_ = false;
  cudaStream_t stream_ = nullptr;
};

}  // namespace evalrun::engine::cuda
