#include "engine/cuda/runtime/queue.h"

#include <cmath>

#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {

Queue::Queue(bool timed) : timed_(timed) {
  EVALRUN_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}
Queue::~Queue() {
  (void)cudaStreamSynchronize(stream_);
  for (const Stretch& s : stretches_) {
    (void)cudaEventDestroy(s.from);
    (void)cudaEventDestroy(s.to);
  }
  (void)cudaStreamDestroy(stream_);
}

void Queue::begin() {
  if (!timed_) return;
  end();  // one that failed half queued
  if (n_ == stretches_.size()) {
    Stretch s{};
    EVALRUN_CUDA(cudaEventCreate(&s.from));
    if (const cudaError_t e = cudaEventCreate(&s.to); e != cudaSuccess) {
      (void)cudaEventDestroy(s.from);
      EVALRUN_CUDA(e);
    }
    stretches_.push_back(s);
  }
  Stretch& s = stretches_[n_];
  s.phase = device_phase();
  EVALRUN_CUDA(cudaEventRecord(s.from, stream_));
  ++n_, open_ = true;
}

void Queue::end() {
  if (!open_) return;
  EVALRUN_CUDA(cudaEventRecord(stretches_[n_ - 1].to, stream_));
  open_ = false;
}

void Queue::wait() {
  end();
  EVALRUN_CUDA(cudaStreamSynchronize(stream_));
  for (size_t i = 0; i < n_; ++i) {
    float ms = 0;
    EVALRUN_CUDA(cudaEventElapsedTime(&ms, stretches_[i].from, stretches_[i].to));
    device_time()[stretches_[i].phase] += std::llround(static_cast<double>(ms) * 1e6);
  }
  n_ = 0;
}

}  // namespace evalrun::engine::cuda
