// What several machines add to a row of a report: their own figures, whether they differ, and the
// speedup for machines like these (joined.h).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "reports/data/pair_columns.h"
#include "reports/data/run_data.h"
#include "reports/figures/joined.h"

namespace evalrun::reports {

// An arm on one machine, by that machine's own clock.
struct MachineFigure {
  int machine = 0;  // number in RunInfo::machines
  int64_t prompts = 0;
  std::optional<double> tok_s, base_tok_s;  // of the arm and of its reference, same prompts
  std::optional<Estimate> speedup;          // 1 without an interval for an arm that is its own
  std::optional<double> t_ratio;            // T(n)/T(1) of the steps, as SpeedReasons
};

struct MachineFigures {
  std::vector<MachineFigure> each;  // machines with prompts of the row, in the run's order
  std::optional<MachineSpread> spread;
  std::optional<Estimate> like_these;
};

// Chance that equal machines differ as much: below it, a report says that they differ.
inline constexpr double kMachinesDiffer = 0.05;

// Of the pairs of an arm and its reference. nullopt for a run of one machine. `design`: of the
// pairs' prompts.
std::optional<MachineFigures> machine_figures(const RunData& data, const ArmCells& method,
                                              const ArmCells& base, const PairColumns& pairs,
                                              bool against_itself, const Design& design);

}  // namespace evalrun::reports
