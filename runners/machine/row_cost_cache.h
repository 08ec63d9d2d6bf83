// The T(n) table of a run: measured in a fraction of a second before the warm-up, or read from the
// file an earlier run with the same model, format, kernels, threads, processor and placement of
// the threads left behind.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/cost/row_cost.h"

namespace evalrun::runners {

// As stored with a run and printed by `evalrun cost`. Only the latter's may be a shape's, and says
// so: runs neither store nor take one.
nlohmann::ordered_json to_json(const engine::RowCostTable& table);
// What to_json wrote of rows, context, bytes and shape; nullopt for anything else: broken, out of
// order, of another version.
std::optional<engine::RowCostTable> row_cost_from_json(const nlohmann::json& json);

// "near" or "far" (engine/cost/machine_probes.h), "one" with one thread.
std::string placement_class(double round_trip_ns, int n_threads);

// Everything that moves a table, readable. "" for models without a hash: nothing tells two apart.
std::string row_cost_key(const engine::Model& model, const engine::SessionOptions& session,
                         const std::string& cpu, const std::string& placement);

// Where runs keep the tables they measured: row-cost.json in $EVALRUN_HOME; "" when there is no
// such folder. And what a run spends on a table it does not find there.
std::string row_cost_cache_path();
inline constexpr double kRowCostSeconds = 0.3;

struct RowCostRequest {
  std::shared_ptr<const engine::Model> model;
  engine::SessionOptions session;  // isa and threads resolved
  std::string cache_file;          // "" = neither read nor written
  double seconds = 1;
  bool keep = true;  // false: what is measured is not written, so that no run relies on it
};

struct MeasuredRowCost {
  engine::RowCostTable table;  // empty when it could not be measured
  double round_trip_ns = 0;
  // Bytes a second of the best read of such a footprint, and what one forward reads of the weights;
  // 0 = not probed (measure_row_cost, runners/measure/runner.h).
  double read_bandwidth = 0;
  int64_t forward_bytes = 0;
  bool cached = false;
  std::string problem;  // why there is no table, or why the file could not be used; "" = none
};

// A DeviceFault is thrown, and nothing else: a run without a table is still a run. Measures in a
// session of its own, so that the measured one starts as it always did. A cache file that is broken
// is written anew.
MeasuredRowCost obtain_row_cost(const RowCostRequest& request);

}  // namespace evalrun::runners
