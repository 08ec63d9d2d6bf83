// What an earlier run of the same arms tells about the next one: how long it takes and how small a
// change it can show.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::reports {

struct TaskHistory {
  double generation_s = 0;  // mean wall time of a generation, over the arms asked for
  // Of the per-prompt log difference between two measurements of the same thing, if both arms of it
  // are measured anew: sqrt(2) times the deviation of ln(speedup) of the A/A arm over the prompts.
  // Absent without an A/A arm, and for fewer than three prompts.
  std::optional<double> deviation;
};

struct RunHistory {
  int64_t run_id = 0;
  std::string label;
  std::map<std::string, TaskHistory> tasks;  // data sets it has finished generations of
  std::optional<double> deviation;           // over the prompts of all of them
};

// The newest run on this machine (environment "gpu", or without one "cpu") that has every one of
// these arms and finished generations of them.
std::optional<RunHistory> find_history(const results::ResultStore& store,
                                       const std::vector<std::string>& arm_keys,
                                       const std::string& machine);

}  // namespace evalrun::reports
