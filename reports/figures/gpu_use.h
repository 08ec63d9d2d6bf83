// What arms took of the GPU they ran on: how long it was busy with a step, what the host added.
// From the view v_gpu; docs/measurement.md, "GPU".
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/data/run_data.h"
#include "results/store.h"

namespace evalrun::reports {

// Finished generations, all repeats; sums over sums.
struct GpuUse {
  // Milliseconds of a step: the GPU was busy with each phase, by its own clock; the rest of the
  // step's wall time was the host's. Of a batch: of a step of all its members. Absent where that
  // was not measured.
  std::optional<double> draft_ms, verify_ms, commit_ms, host_ms;
  std::optional<double> busy;  // share of the wall time of decoding
};

// What disturbed the times of a run on a GPU.
struct GpuDisturbances {
  int64_t generations = 0;                // finished ones on a GPU
  std::map<std::string, int64_t> slowed;  // at whose end the driver held the clock down, by reason
  // Forwards that were launched kernel by kernel, and steps, by arms that have such.
  std::map<std::string, std::pair<int64_t, int64_t>> graph_misses;
};
// A sentence each; none where nothing did.
std::vector<std::string> gpu_remarks(const GpuDisturbances& disturbances);

class GpuTotals {
 public:
  GpuTotals() = default;
  // Asks only for runs with an arm on a GPU.
  GpuTotals(const results::ResultStore& store, const RunData& data);
  // nullopt when nothing is known of these prompts.
  std::optional<GpuUse> of(const ArmInfo& arm,
                           const std::function<bool(int64_t prompt_id)>& keep) const;
  const GpuDisturbances& disturbances() const { return disturbances_; }

 private:
  struct Totals {
    double steps = 0, decode_ns = 0;
    std::optional<double> draft_ns, verify_ns, commit_ns;  // of all, or absent
  };
  std::map<std::pair<int64_t, int64_t>, Totals> totals_;  // arm id, prompt id
  GpuDisturbances disturbances_;
};

}  // namespace evalrun::reports
