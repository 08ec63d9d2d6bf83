#include "runners/plan/batch_memory.h"

#include <set>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/cache_memory.h"
#include "engine/devices.h"

namespace evalrun::runners {
namespace {

// Of all models of the plan: each has a session of its own.
double bytes_of_batch(const RunPlan& plan, const engine::SessionOptions& session, int batch) {
  std::set<const engine::Model*> models;
  for (const PlannedArm& arm : plan.arms) models.insert(arm.model.get());
  double bytes = 0;
  for (const engine::Model* model : models) {
    engine::SessionOptions options = engine::resolve_options(session, model->format());
    options.n_sequences = batch;
    bytes += engine::cache_bytes_for(model->config(), options);
  }
  return bytes;
}

}  // namespace

void check_batch_memory(const RunPlan& plan, const engine::SessionOptions& session,
                        double available_bytes) {
  if (plan.suite.batches.one() || engine::is_gpu(session.device)) return;
  const int largest = plan.suite.batches.largest();
  const double needed = bytes_of_batch(plan, session, largest);
  if (needed <= available_bytes) return;
  int fits = largest - 1;
  while (fits > 0 && bytes_of_batch(plan, session, fits) > available_bytes) --fits;
  throw base::usage_error(
      fmt::format("batch {} needs {} of keys and values for sequences of {} tokens, {} are free: "
                  "{}",
                  largest, base::format_bytes(needed), plan.capacity,
                  base::format_bytes(available_bytes),
                  fits > 0 ? fmt::format("batch {} fits", fits) : "not even one sequence fits"),
      "smaller sizes (--batch), shorter answers (-n/--max-new) or prompts (--limit), or bytes for "
      "keys and values (--kv-dtype int8)");
}

}  // namespace evalrun::runners
