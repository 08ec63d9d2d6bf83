// When is the machine warm: step times of a decoding run, watched until they stop moving.
#pragma once
#include <cstdint>
#include <vector>

namespace evalrun::runners {

// Settled when the median of the last five step times differs by less than 1 % from the median of
// the five before them.
class SteadyState {
 public:
  void add(int64_t step_ns) { times_.push_back(step_ns); }
  bool settled() const;
  int steps() const { return static_cast<int>(times_.size()); }

 private:
  std::vector<int64_t> times_;
};

}  // namespace evalrun::runners
