// The one clock of the harness: monotonic nanoseconds. Tests hand in a fake one.
#pragma once
#include <chrono>
#include <cstdint>

namespace evalrun::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace evalrun::base
