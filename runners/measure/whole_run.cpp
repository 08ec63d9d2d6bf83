// A plan carried out from beginning to end: row costs, sessions, the runner.
#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cost/machine_probes.h"
#include "engine/devices.h"
#include "methods/model_draft/vocabulary_map.h"
#include "runners/measure/runner.h"

namespace evalrun::runners {

void measure_row_cost(const PlanRequest& request, const RunPlan& plan,
                      const RunnerOptions& options) {
  if (options.row_cost_seconds <= 0 || first_decoded(plan) == nullptr) return;
  if (plan.row_cost->given) return;
  *plan.row_cost = obtain_row_cost({.model = request.target,
                                    .session = planned_session(request, plan),
                                    .cache_file = options.row_cost_cache,
                                    .seconds = options.row_cost_seconds,
                                    .batches = plan.suite.batches.sizes});
  if (engine::is_gpu(planned_session(request, plan).device)) return;  // its memory is not probed
  // Of larger models a part: what is beyond every cache is read alike.
  constexpr size_t kMostProbed = size_t{256} << 20;
  // Enough passes over either: one over a small model takes microseconds.
  const double seconds = request.target->streamed_bytes() < (size_t{16} << 20) ? 0.02 : 0.2;
  plan.row_cost->forward_bytes = static_cast<int64_t>(request.target->streamed_bytes());
  plan.row_cost->read_bandwidth =
      engine::read_bandwidth(std::min(request.target->streamed_bytes(), kMostProbed),
                             planned_session(request, plan).n_threads, seconds);
}

namespace {

std::vector<std::string> arms_of_few_common_tokens(const RunPlan& plan) {
  std::vector<std::string> arms;
  for (const PlannedArm& arm : plan.arms) {
    const auto few = arm.record.settings.find(methods::kFewTokensSetting);
    if (few != arm.record.settings.end())
      arms.push_back(fmt::format("{}: {}", arm.record.label, few->second));
  }
  return arms;
}

}  // namespace

RunOutcome run_plan(const PlanRequest& request, const RunPlan& plan, results::ResultStore& store,
                    base::Clock& clock, const RunnerOptions& options) {
  const Conversation conversation(*request.target);
  if (options.progress != nullptr)
    for (const std::string& method : plan.left_out) options.progress->left_out(method);
  Runner runner(plan, conversation, store, clock, options);
  if (runner.pending() == 0 && !runner.asks_models()) return runner.finish_without_measuring();
  if (options.turns != nullptr) {
    options.turns->announce(runner.pending(), plan.suite.repeats * plan.suite.samples);
    if (!options.turns->next())
      throw base::Error(base::ExitCode::kInterrupted, "interrupted: no turn was given");
  }
  if (runner.pending() > 0) measure_row_cost(request, plan, options);
  ModelSessions sessions(planned_session(request, plan));
  RunOutcome outcome =
      runner.run([&](const auto& model) -> engine::Session& { return sessions.of(model); });
  outcome.few_common_tokens = arms_of_few_common_tokens(plan);
  return outcome;
}

RunOutcome run_suite(const PlanRequest& request, results::ResultStore& store, base::Clock& clock,
                     const RunnerOptions& options) {
  return run_plan(request, make_plan(request), store, clock, options);
}

}  // namespace evalrun::runners
