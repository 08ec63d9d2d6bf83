#include "runners/plan/plan.h"

#include <cmath>
#include <utility>

#include "engine/session_options.h"

namespace evalrun::runners {

const PlannedArm* first_decoded(const RunPlan& plan) {
  for (const PlannedArm& arm : plan.arms)
    if (!arm.endpoint) return &arm;
  return nullptr;
}

engine::SessionOptions planned_session(const PlanRequest& request, const RunPlan& plan) {
  engine::SessionOptions options = request.session;
  options.max_tokens = plan.capacity;
  options.n_sequences = plan.suite.batches.largest();
  options.kv_cache = request.suite.kv_cache;
  const PlannedArm* decoded = first_decoded(plan);
  if (decoded == nullptr) return engine::resolve_engine(std::move(options));
  options.n_threads = decoded->record.threads;
  options.isa = decoded->record.isa;
  options.device = decoded->record.device;
  return options;
}

double minimum_detectable_effect(double sd, int n) {
  constexpr double kQuantiles = 1.6449 + 0.8416;  // normal, 95 % and 80 %
  return 1 - std::exp(-kQuantiles * sd / std::sqrt(static_cast<double>(n)));
}

}  // namespace evalrun::runners
