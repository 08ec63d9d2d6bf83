// How often the gate is wrong on a machine of some kind: its own statistic, on simulated times of
// the suite `ci` on the default model.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "reports/gate/simulated/noisy_machine.h"

namespace evalrun::reports {

enum class SimulatedWay { kStored, kTurns, kLockStep };

// Of the new build, as factors of its times.
struct SimulatedFault {
  double plain = 1, method = 1;
  // "spiky:3x/20": of the method's steps, one in `every` takes `times` as long. 0: none.
  int every = 0;
  double times = 1;
  // What that does to a whole answer.
  double of_answer() const { return every > 0 ? 1 + (times - 1) / every : 1; }
};

struct SimulatedSize {
  int prompts = 24, repeats = 3;
  int tokens = 64;            // of an answer
  int sessions = 1;           // per look
  int baseline_sessions = 1;  // of a stored baseline, each on a day of its own
  int looks = 3;
  bool aa = true;
  double start_s = 2;  // of a process: load and warm-up
};
// What `check` measures in that way.
SimulatedSize usual_size(SimulatedWay way);

enum class SimulatedVerdict { kOk, kSlower, kInconclusive };
struct SimulatedDecision {
  SimulatedVerdict verdict = SimulatedVerdict::kOk;
  double seconds = 0;  // of the machine, the baseline's not counted
  int sessions = 0;
};
SimulatedDecision simulate_check(const MachineKind& kind, SimulatedWay way,
                                 const SimulatedFault& fault, const SimulatedSize& size,
                                 uint64_t seed);

// Many of them.
struct SimulatedRates {
  int trials = 0, ok = 0, slower = 0, inconclusive = 0;
  double median_s = 0;
  double share(int count) const { return trials > 0 ? 1.0 * count / trials : 0; }
};
SimulatedRates simulated_rates(const MachineKind& kind, SimulatedWay way,
                               const SimulatedFault& fault, const SimulatedSize& size, int trials,
                               uint64_t seed);

}  // namespace evalrun::reports
