#include "reports/gate/simulated/noisy_machine.h"

#include <cmath>

#include "engine/base/stats.h"

namespace evalrun::reports {

std::span<const MachineKind> machine_kinds() {
  // The shift of sessions and the drift are those of the review of version 0.1.0. How much of the
  // shift is a process's own is not known of them; half of it is assumed, which is much: a machine
  // whose processes differ by more than 1 % is a bad one to measure on in any way.
  static const std::array<MachineKind, 6> kinds = {{
      {"dedicated", 0.003, 0.0015, 0.003, 60, 0.01, 0, 0, 0, 0},
      {"quiet virtual machine", 0.01, 0.005, 0.01, 60, 0.015, 0.01, 0.1, 0, 0},
      {"hosted runner", 0.02, 0.01, 0.02, 60, 0.02, 0.05, 0.2, 0, 0},
      {"hosted runner, phases", 0.02, 0.01, 0.02, 60, 0.02, 0.05, 0.2, 0.05, 60},
      {"bad neighbour", 0.04, 0.02, 0.03, 30, 0.04, 0.1, 0.4, 0, 0},
      // Follows, by eye, two cores of a shared host (plain decoding of the default model, 5 ms a
      // step): white noise of 8 % a step, changes of 8 % that last a third of a second, processes
      // that differ by 0.7 %; one step in sixty takes three times as long.
      {"shared host", 0.02, 0.007, 0.03, 60, 0.01, 1, 0.03, 0, 0, 0.08, 0.3},
  }};
  return kinds;
}

NoisyMachine::NoisyMachine(const MachineKind& kind, uint64_t seed) : kind_(kind), rng_(seed) {
  ratio_ = kind_.drift_sd * normal();
  speed_ = kind_.drift_sd * normal();
  start_session();
}

double NoisyMachine::normal() {
  return base::normal_quantile(rng_.uniform() * (1 - 1e-12) + 1e-13);
}

void NoisyMachine::start_session() {
  session_ = kind_.session_sd * normal();
  phase_ = rng_.uniform() < 0.5;
}

NoisyMachine::Process NoisyMachine::start_process() {
  // Each arm by itself, so that their ratio varies by process_sd.
  const double sd = kind_.process_sd / std::sqrt(2.0);
  return {{sd * normal(), sd * normal()}};
}

// Drift as an Ornstein-Uhlenbeck process, phases as a telegraph; both exact for any step.
void NoisyMachine::pass(double seconds) {
  now_s_ += seconds;
  const double stays = std::exp(-seconds / kind_.drift_s);
  const double moves = kind_.drift_sd * std::sqrt(1 - stays * stays);
  if (kind_.quick_sd > 0) {
    const double lasts = std::exp(-seconds / kind_.quick_s);
    quick_ = lasts * quick_ + kind_.quick_sd * std::sqrt(1 - lasts * lasts) * normal();
  }
  ratio_ = stays * ratio_ + moves * normal();
  speed_ = stays * speed_ + moves * normal();
  if (kind_.phase_size > 0) {
    const double flips = 0.5 * (1 - std::exp(-2 * seconds / kind_.phase_s));
    if (rng_.uniform() < flips) phase_ = !phase_;
  }
}

double NoisyMachine::part(const Process& process, int arm, double nominal_s, double share) {
  // Noise and spikes are a whole generation's: of a part more, of all parts as much.
  double log = speed_ + quick_ + process.shift[static_cast<size_t>(arm)] +
               kind_.noise_sd / std::sqrt(share) * normal();
  if (arm == 1) log += session_ + ratio_ + (phase_ ? kind_.phase_size : 0);
  double seconds = share * nominal_s * std::exp(log);
  if (rng_.uniform() < kind_.spike_share * share)
    seconds *= 1 - kind_.spike_size / share * std::log(1 - rng_.uniform());
  pass(seconds);
  return seconds;
}

}  // namespace evalrun::reports
