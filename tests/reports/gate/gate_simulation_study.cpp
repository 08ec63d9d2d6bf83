// By hand, a minute: how often the gate is wrong on simulated machines, for the three ways in which
// it measures; the table of docs/gate.md, "How often the gate is wrong". Then the same in lock step
// for builds some of whose steps take longer.
//
//   gate_simulation_study [TRIALS]                     (1000)
//   gate_simulation_study TRIALS lock-step PROMPTS TOKENS SESSIONS LOOKS
//
// The second form tries another size of a session in lock step.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "reports/gate/simulated/simulated_gate.h"

namespace {

using namespace evalrun::reports;

constexpr double kSlow = 1.05;
constexpr uint64_t kSeed = 34;

struct NamedFault {
  const char* name;
  SimulatedFault fault;
};
const std::vector<NamedFault> kFaults = {{"unchanged", {}},
                                         {"slow:5%", {1, kSlow}},
                                         {"ar-slow:5%", {kSlow, 1}},
                                         {"all-slow:5%", {kSlow, kSlow}}};
const std::vector<NamedFault> kSpiky = {{"spiky:3x/20", {.every = 20, .times = 3}},
                                        {"spiky:3x/60", {.every = 60, .times = 3}},
                                        {"spiky:6x/60", {.every = 60, .times = 6}}};

void print_head(const std::vector<NamedFault>& faults) {
  std::string names, lines;
  for (const NamedFault& fault : faults) {
    names += fmt::format(" {} |", fault.name);
    lines += "--:|";
  }
  fmt::print("| machine | way |{}\n|:--|:--|{}\n", names, lines);
}

void print(const MachineKind& kind, SimulatedWay way, const char* name, const SimulatedSize& size,
           int trials, const std::vector<NamedFault>& faults = kFaults) {
  std::string cells;
  for (const NamedFault& fault : faults) {
    const SimulatedRates r = simulated_rates(kind, way, fault.fault, size, trials, kSeed);
    cells += fmt::format(" {:.1f} / {:.1f} / {:.0f} |", 100 * r.share(r.slower),
                         100 * r.share(r.inconclusive), r.median_s);
  }
  fmt::print("| {} | {} |{}\n", kind.name, name, cells);
}

}  // namespace

int main(int argc, char** argv) {
  const int trials = argc > 1 ? std::atoi(argv[1]) : 1000;
  SimulatedSize size = usual_size(SimulatedWay::kLockStep);
  if (argc > 6) {
    size.prompts = std::atoi(argv[3]), size.tokens = std::atoi(argv[4]);
    size.sessions = std::atoi(argv[5]), size.looks = std::atoi(argv[6]);
  }
  fmt::print("Of 100 checks: called slower / inconclusive / median seconds\n\n");
  print_head(kFaults);
  for (const MachineKind& kind : machine_kinds()) {
    if (argc <= 6) {
      SimulatedSize stored = usual_size(SimulatedWay::kStored);
      print(kind, SimulatedWay::kStored, "stored, 1 session", stored, trials);
      stored.baseline_sessions = 8;
      print(kind, SimulatedWay::kStored, "stored, 8 sessions", stored, trials);
      print(kind, SimulatedWay::kTurns, "turns", usual_size(SimulatedWay::kTurns), trials);
    }
    print(kind, SimulatedWay::kLockStep, "lock step", size, trials);
  }
  fmt::print("\nOne step of the method in N takes M times as long, spiky:Mx/N\n\n");
  print_head(kSpiky);
  for (const MachineKind& kind : machine_kinds())
    print(kind, SimulatedWay::kLockStep, "lock step", size, trials, kSpiky);
  return 0;
}
