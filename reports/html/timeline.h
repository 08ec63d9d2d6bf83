// One generation of every arm, step by step, for the report that people read: its rows only,
// however large the run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::reports {

struct TimelineStep {
  int turn = 0;  // 0-based
  results::StepRecord step;
};

struct Timeline {
  int64_t generation = 0;  // its number, as `evalrun show` takes it
  std::string arm, task, prompt;
  std::string question, answer;  // of the first turn, cut at kTimelineText bytes
  int64_t n_steps = 0;           // of the generation; `steps` holds the first kTimelineSteps
  std::vector<TimelineStep> steps;
};

inline constexpr int64_t kTimelineSteps = 256;
inline constexpr size_t kTimelineText = 1200;

// The first prompt's first finished generation without a planted fault, per arm in their order;
// arms without one are left out.
std::vector<Timeline> load_timelines(const results::ResultStore& store, int64_t run_id);

}  // namespace evalrun::reports
