// The check "environment" of the gate: was the machine fit to measure, and may its state have made
// the speed verdict?
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "results/store.h"
#include "runners/cli/gate/gate_outcome.h"

namespace evalrun::cli {

struct MeasuredRun {
  const results::ResultStore& store;
  int64_t id = 0;
  std::string name;  // what the check calls it: "run 3"
};

// Interleaving puts what other guests take on all arms alike, up to a point: where they had a fifth
// of the processor time, step times say more about them than about us.
inline constexpr double kMostStolen = 0.20;
// The kernel counts it in ticks of 10 ms: of a run of some milliseconds less says nothing.
inline constexpr int64_t kFewestStolenNs = 100'000'000;

// Adds the check to a measured outcome, one verdict per run, from what these stored with their
// generations, and sets `steal_share` to the worst. Exit code 6 only where the verdict is about
// speed and a clock that differs between the arms, or within the run, or other guests of the
// machine may have made it. Other processes do not change a verdict: blocks put them on both arms
// alike, and what they add in noise ends as inconclusive. `enough`: as many unfit runs change a
// verdict. In lock step both builds had the same machine, and a session is short, so that one of
// many says little.
void judge_environment(const std::vector<MeasuredRun>& runs, GateOutcome& outcome,
                       size_t enough = 1);

}  // namespace evalrun::cli
