// Where the time of a step goes: draft, verify, commit, the rest.
#pragma once
#include <cstdint>

#include "engine/base/clock.h"
#include "engine/device_time.h"
#include "engine/trace.h"

namespace evalrun::methods {

// Splits the wall time of a step; a method calls enter() when it moves on. Time not claimed by
// draft, verify or commit is overhead. Reads the clock once per call; the three are spans for
// profilers, too. What a device does meanwhile is counted separately (engine/device_time.h).
class PhaseTimer {
 public:
  enum Phase { kDraft, kVerify, kCommit, kOther, kCount };
  explicit PhaseTimer(base::Clock& clock) : clock_(clock) {}
  ~PhaseTimer() { show(kOther); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  void begin_step() {
    for (int64_t& t : ns_) t = 0;
    show(kOther);
    last_ = clock_.now_ns();
  }
  void enter(Phase next) {
    const int64_t now = clock_.now_ns();
    ns_[phase_] += now - last_;
    last_ = now;
    show(next);
  }
  int64_t end_step() {  // returns the time at which the step ended
    enter(kOther);
    return last_;
  }
  int64_t ns(Phase p) const { return ns_[p]; }
  int64_t total_ns() const { return ns_[0] + ns_[1] + ns_[2] + ns_[3]; }

 private:
  void show(Phase next) {
    static constexpr const char* kNames[] = {"draft", "verify", "commit"};
    using Device = engine::DevicePhase;
    static constexpr Device kOnDevice[] = {Device::kDraft, Device::kVerify, Device::kCommit,
                                           Device::kOther};
    if (phase_ != kOther) engine::pop_span();
    if (next != kOther) engine::push_span(kNames[next]);
    engine::device_phase() = kOnDevice[next];
    phase_ = next;
  }

  base::Clock& clock_;
  int64_t ns_[kCount] = {};
  int64_t last_ = 0;
  Phase phase_ = kOther;
};

}  // namespace evalrun::methods
