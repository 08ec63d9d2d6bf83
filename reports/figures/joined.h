// The speedup of a run that several machines measured, each prompt on one of them: machine by
// machine, whether machines differ, and for machines like these. docs/measurement.md, "Several
// machines", says what is estimated and how well it covers.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "reports/data/design.h"
#include "reports/data/estimators.h"

namespace evalrun::reports {

// Whether the speedups of machines differ by more than their prompts make them: Cochran's Q with
// the variance of a prompt pooled over machines, since those of few prompts are badly estimated.
// Then Q / (k - 1) is the F of a one-way analysis of variance, whatever the number of prompts
// (Cochran 1954, "The combination of estimates from different experiments"; Kulinskaya, Dollinger
// and Bjorkestol 2011 on Q with estimated variances).
struct MachineSpread {
  double q = 0;
  double dof = 0, within = 0;  // machines - 1; units less machines
  double p = 1;
  double i2 = 0;   // share of Q that chance does not explain (Higgins and Thompson 2002)
  double tau = 0;  // sd of ln speedup between machines (DerSimonian and Laird 1986)
};

struct JoinedSpeed {
  // By machine, nullopt where it has no speedup. Intervals are for new prompts on that machine.
  std::vector<std::optional<Estimate>> machines;
  // Absent for fewer than two machines with a speedup, where none has two units, and where prompts
  // do not differ at all.
  std::optional<MachineSpread> spread;
  // The same estimate as over these machines, its interval for the mean of machines like these: the
  // machines are what would be drawn anew. Absent for fewer than two.
  std::optional<Estimate> like_these;
};

// `pairs`: on one clock (clock_scales()), each of a machine 0 .. k - 1. `design`: of the pairs; its
// units count, and its strata within a machine.
JoinedSpeed join_machines(std::span<const PromptPair> pairs, std::span<const int> machine, int k,
                          Estimator estimator, const Design& design = {});

}  // namespace evalrun::reports
