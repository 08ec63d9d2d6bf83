#include "runners/measure/run_facts.h"

#include <algorithm>

#include "results/queries.h"
#include "runners/machine/environment.h"

namespace evalrun::runners {

int64_t arm_row(const RunPlan& plan, const results::ArmRecord& arm, results::ResultStore& store,
                int64_t run_id) {
  if (plan.shard) {
    const std::vector<results::ArmRow> stored_arms = results::arms(store, run_id);
    const auto find = [&](const auto& same) {
      return std::find_if(stored_arms.begin(), stored_arms.end(), same);
    };
    auto found = find([&](const results::ArmRow& row) { return row.record.key == arm.key; });
    if (found == stored_arms.end())
      found = find([&](const results::ArmRow& row) {
        return plan_arm_key(row.record) == plan_arm_key(arm);
      });
    if (found != stored_arms.end()) return found->id;
  }
  return store.add_arm(run_id, arm);
}

bool raise_bytes(RunningArm& arm, results::ArmRecord& bytes) {
  const methods::DecodingMethod& method = arm.method();
  const engine::Session& session = *arm.session;
  // The session has room for the largest batch of the run.
  const auto kv = static_cast<int64_t>(session.kv_bytes() * static_cast<size_t>(arm.batch()) /
                                           static_cast<size_t>(session.options().n_sequences) +
                                       method.extra_kv_bytes());
  const auto extra = static_cast<int64_t>(method.extra_parameter_bytes());
  const int64_t peak = peak_memory_bytes();
  if (kv <= bytes.kv_bytes && extra <= bytes.extra_parameter_bytes && peak <= bytes.peak_bytes)
    return false;
  bytes.kv_bytes = std::max(bytes.kv_bytes, kv);
  bytes.extra_parameter_bytes = std::max(bytes.extra_parameter_bytes, extra);
  bytes.peak_bytes = std::max(bytes.peak_bytes, peak);
  return true;
}

void note_row_cost(const MeasuredRowCost& cost, const NoteFact& note) {
  if (cost.read_bandwidth > 0) {
    note("read_bandwidth", fmt::format("{:.0f}", cost.read_bandwidth));
    note("forward_bytes", std::to_string(cost.forward_bytes));
  }
  if (cost.table.empty()) return;
  if (cost.given) return note("row_cost_given", to_json(cost.table).dump());
  note("row_cost", to_json(cost.table).dump());
  for (const auto& [sequences, table] : cost.batches)
    note(fmt::format("row_cost_batch_{}", sequences), to_json(table).dump());
  if (cost.round_trip_ns > 0)
    note("cache_line_round_trip_ns", fmt::format("{:.0f}", cost.round_trip_ns));
}

void note_weight_placement(const std::vector<RunningArm>& arms, const NoteFact& note) {
  const auto decoded = std::find_if(arms.begin(), arms.end(),
                                    [](const RunningArm& arm) { return arm.session != nullptr; });
  if (decoded == arms.end()) return;
  const engine::WeightPlacement placement = decoded->session->weight_placement();
  if (placement.nodes == 1) return;
  note("weight_placement", placement.how);
  if (!placement.refusal.empty()) note("weight_placement_refusal", placement.refusal);
}

}  // namespace evalrun::runners
