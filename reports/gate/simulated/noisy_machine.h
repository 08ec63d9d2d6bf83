// A simulated machine that measures badly, in the ways in which real ones do: what the gate's error
// rates are counted on (simulated_gate.h).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/base/rng.h"

namespace evalrun::reports {

// Standard deviations are of ln of a time. "Ratio": of a method's time to plain decoding's.
struct MachineKind {
  std::string name;
  // What a day, a host or its other guests do to the ratio: the same for processes that run at one
  // time, another for a stored baseline.
  double session_sd;
  // What one process does to the ratio of its own: memory layout.
  double process_sd;
  // Slow change of the ratio and, apart from it, of all speeds, which is undone in drift_s.
  double drift_sd, drift_s;
  double noise_sd;  // of one generation
  // Now and then a generation takes longer, by spike_size on average.
  double spike_share, spike_size;
  // The ratio jumps by phase_size and back, after phase_s on average.
  double phase_size, phase_s;
  // Change of all speeds within fractions of a second: other guests' use of memory and caches.
  double quick_sd = 0, quick_s = 1;
};

// Dedicated, quiet virtual machine, hosted CI runner, the same with jumps, bad neighbour, and a
// guest of a shared host as it was measured.
std::span<const MachineKind> machine_kinds();

// Plain decoding is arm 0, a method arm 1.
class NoisyMachine {
 public:
  struct Process {
    std::array<double, 2> shift;  // of ln of the time, by arm
  };

  NoisyMachine(const MachineKind& kind, uint64_t seed);
  // Another day: baselines are stored in one, checked in the next.
  void start_session();
  Process start_process();
  // Seconds that a generation of `arm` takes that takes `nominal_s` on a machine without noise. The
  // machine's time goes on, by `around_s` (prefill, storing) more.
  double generation(const Process& process, int arm, double nominal_s, double around_s) {
    const double seconds = part(process, arm, nominal_s, 1);
    pass(around_s);
    return seconds;
  }
  // The share `share` of such a generation, without what is around it.
  double part(const Process& process, int arm, double nominal_s, double share);
  void pass(double seconds);
  double now_s() const { return now_s_; }

 private:
  double normal();

  const MachineKind& kind_;
  base::Rng rng_;
  double now_s_ = 0;
  double session_ = 0, ratio_ = 0, speed_ = 0, quick_ = 0;  // ln
  bool phase_ = false;
};

}  // namespace evalrun::reports
