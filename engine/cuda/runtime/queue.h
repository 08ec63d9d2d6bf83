// The stream of one session, and how long the device was busy with what was put on it
// (engine/device_time.h).
#pragma once
#include <cuda_runtime.h>

#include <vector>

#include "engine/device_time.h"

namespace evalrun::engine::cuda {

class Queue {
 public:
  // On the device that is current. Two events a stretch of work when `timed`.
  explicit Queue(bool timed);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  cudaStream_t stream() const { return stream_; }
  // From here to the next end() or wait() lies work of the phase this thread is in.
  void begin();
  void end();
  // Until everything has run.
  void wait();

 private:
  struct Stretch {
    cudaEvent_t from, to;
    DevicePhase phase;
  };
  cudaStream_t stream_ = nullptr;
  const bool timed_;
  std::vector<Stretch> stretches_;  // the first n_ since the last wait
  size_t n_ = 0;
  bool open_ = false;  // the last of them
};

}  // namespace evalrun::engine::cuda
