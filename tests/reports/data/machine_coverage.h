// Simulated runs of several machines whose true speedups are known: how often the joined intervals
// hold the truth (reports/figures/joined.h), beside others that might have been taken.
#pragma once
#include <vector>

#include "reports/figures/joined.h"
#include "tests/reports/data/coverage.h"

namespace evalrun::tests {

struct MachineModel {
  std::vector<int> sizes;  // prompts of each machine
  double speedup_sd = 0;   // of ln speedup between machines
  double speed_sd = 0.5;   // of ln speed of plain decoding
  bool outliers = false;   // one machine in ten has three times that speedup_sd
  PromptModel prompts = {};
};
// `k` machines; `sizes` are repeated in a cycle.
MachineModel machine_model(int k, std::vector<int> sizes, double speedup_sd);

// These machines: the job's share of each and its true speedup. Machines like these: the mean over
// machines of that kind.
enum class Question { kThese, kLikeThese };

// kJoined: as reports have it. kPooled: all prompts as if of one machine and one clock. kHksj:
// random effects of geometric means, tau by Paule and Mandel (1982), the interval by Hartung and
// Knapp (2001) and Sidik and Jonkman (2002), with the variances of each machine by itself.
// kHksjPooled: with the variance of a prompt pooled over machines.
enum class JoinedBy { kJoined, kPooled, kHksj, kHksjPooled };

struct MachineCoverage {
  Coverage coverage;
  double width = 0;  // median of ln hi/lo
};
MachineCoverage cover_machines(const MachineModel& model, Question question,
                               reports::Estimator estimator, JoinedBy by, int experiments);

// How often machines are said to differ, at a level of 5 %: by F of the pooled variance as reports
// do it, or by chi-square with each machine's own variance.
struct SpreadCalls {
  Coverage by_f, by_chi_square;
};
SpreadCalls call_spread(const MachineModel& model, reports::Estimator estimator, int experiments);

}  // namespace evalrun::tests
