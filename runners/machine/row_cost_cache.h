// The T(n) tables of a run, of one sequence and of each batch: measured in a fraction of a second
// before the warm-up, or read from the file an earlier run with the same model, format, kernels,
// threads, processor and placement of the threads left behind.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/cost/row_cost.h"

namespace evalrun::runners {

// As stored with a run and printed by `evalrun cost`. Only the latter's may be a shape's, and says
// so: runs neither store nor take one.
nlohmann::ordered_json to_json(const engine::RowCostTable& table);
// What to_json wrote of rows, context, sequences, bytes and shape; nullopt for anything else:
// broken, out of order, of another version.
std::optional<engine::RowCostTable> row_cost_from_json(const nlohmann::json& json);

// "near" or "far" (engine/cost/machine_probes.h), "one" with one thread.
std::string placement_class(double round_trip_ns, int n_threads);

// Everything that moves a table of the session's sequences, readable. "" for models without a hash:
// nothing tells two apart.
std::string row_cost_key(const engine::Model& model, const engine::SessionOptions& session,
                         const std::string& cpu, const std::string& placement);

// Names a table among the settings of an arm whose steps follow it.
std::string row_cost_id(const engine::RowCostTable& table);

// Where runs keep the tables they measured: row-cost.json in $EVALRUN_HOME; "" when there is no
// such folder. And what a run spends on a table it does not find there.
std::string row_cost_cache_path();
inline constexpr double kRowCostSeconds = 0.3;

struct RowCostRequest {
  std::shared_ptr<const engine::Model> model;
  engine::SessionOptions session;  // isa and threads resolved; how many tokens and sequences is not
                                   // asked
  std::string cache_file;          // "" = neither read nor written
  // For the table of one sequence, and as much for those of all batches together. Each may take
  // more: it has three rounds of the row counts of which three take less than three times as long.
  double seconds = 1;
  bool keep = true;  // false: what is measured is not written, so that no run relies on it
  std::vector<int> batches = {};  // sizes, a table for each above 1
};

struct MeasuredRowCost {
  engine::RowCostTable table;  // of one sequence; empty when it could not be measured
  // By batch size, where two row counts or more could be measured: one says nothing of drafts.
  std::map<int, engine::RowCostTable> batches;
  double round_trip_ns = 0;
  // Bytes a second of the best read of such a footprint, and what one forward reads of the weights;
  // 0 = not probed (measure_row_cost, runners/measure/runner.h).
  double read_bandwidth = 0;
  int64_t forward_bytes = 0;
  bool cached = false;  // all of it
  bool given = false;   // from a file of the user's: not measured here, and not what rows cost here
  std::string problem;  // why a table is missing, or why the file could not be used; "" = none

  // What methods of this batch go by: its own table, or what that of one sequence says of it
  // (RowCostTable::of_batch). Empty where there is none.
  engine::RowCostTable of_batch(int batch) const;
};

// A DeviceFault is thrown, and nothing else: a run without a table is still a run. Measures in a
// session of its own, so that the measured one starts as it always did. A cache file that is broken
// is written anew. A batch that cannot be measured costs no other its table.
MeasuredRowCost obtain_row_cost(const RowCostRequest& request);

}  // namespace evalrun::runners
