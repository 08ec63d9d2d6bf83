// Where a forward's time went on the device: events between its phases.
#pragma once
#include <utility>
#include <vector>

#include "engine/cuda/runtime/check.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

class PhaseEvents {
 public:
  PhaseEvents() = default;
  ~PhaseEvents() {
    for (const auto& [event, phase] : marks_) (void)cudaEventDestroy(event);
  }
  PhaseEvents(const PhaseEvents&) = delete;
  PhaseEvents& operator=(const PhaseEvents&) = delete;

  void begin(cudaStream_t stream) {
    next_ = 0;
    mark(nullptr, stream);
  }
  // What was queued since the last mark belongs to `phase`.
  void mark(double PhaseTimes::*phase, cudaStream_t stream) {
    if (next_ == marks_.size()) {
      cudaEvent_t event;
      EVALRUN_CUDA(cudaEventCreate(&event));
      marks_.emplace_back(event, nullptr);
    }
    marks_[next_].second = phase;
    EVALRUN_CUDA(cudaEventRecord(marks_[next_++].first, stream));
  }
  // Once the stream has run.
  PhaseTimes times() const {
    PhaseTimes sum;
    for (size_t i = 1; i < next_; ++i) {
      float ms = 0;
      EVALRUN_CUDA(cudaEventElapsedTime(&ms, marks_[i - 1].first, marks_[i].first));
      sum.*marks_[i].second += static_cast<double>(ms);
    }
    return sum;
  }

 private:
  std::vector<std::pair<cudaEvent_t, double PhaseTimes::*>> marks_;
  size_t next_ = 0;
};

}  // namespace evalrun::engine::cuda
