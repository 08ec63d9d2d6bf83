#include "runners/plan/plan.h"

#include <cmath>

namespace evalrun::runners {

engine::SessionOptions planned_session(const PlanRequest& request, const RunPlan& plan) {
  engine::SessionOptions options = request.session;
  options.max_tokens = plan.capacity;
  options.n_sequences = plan.suite.batches.largest();
  options.kv_cache = request.suite.kv_cache;
  options.n_threads = plan.arms.front().record.threads;
  options.isa = plan.arms.front().record.isa;
  options.device = plan.arms.front().record.device;
  return options;
}

double minimum_detectable_effect(double sd, int n) {
  constexpr double kQuantiles = 1.6449 + 0.8416;  // normal, 95 % and 80 %
  return 1 - std::exp(-kQuantiles * sd / std::sqrt(static_cast<double>(n)));
}

}  // namespace evalrun::runners
