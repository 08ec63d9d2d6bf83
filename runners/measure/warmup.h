// Warm-up before anything is measured: generations that are thrown away, until the machine is warm.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/clock.h"
#include "runners/measure/generation.h"
#include "runners/measure/progress.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// Settled when the median of the last five step times differs by less than 1 % from the median of
// the five before them.
class SteadyState {
 public:
  void add(int64_t step_ns) { times_.push_back(step_ns); }
  bool settled() const;
  int steps() const { return static_cast<int>(times_.size()); }

 private:
  std::vector<int64_t> times_;
};

// Warms up every arm that is decoded here as the plan's suite says. `stop` may be empty. A method
// that fails here fails again in its first measured generation, where the failure is stored; a
// DeviceFault is thrown.
void warm_up(const RunPlan& plan, const std::vector<const Visit*>& pending,
             GenerationDecoder& decoder, base::Clock& clock, std::vector<RunningArm>& arms,
             ProgressSink& progress, const std::function<bool()>& stop);

}  // namespace evalrun::runners
