// The comparison table: one row per data set and arm, from one run of a store. docs/measurement.md
// defines every column; a row's numbers equal the documented views.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "reports/document/document.h"
#include "reports/figures/conditions.h"
#include "reports/figures/gpu_use.h"
#include "reports/figures/parts.h"
#include "reports/figures/report_options.h"
#include "reports/figures/report_row.h"
#include "results/store.h"

namespace evalrun::reports {

struct Report {
  RunInfo run;
  Estimator estimator = Estimator::kSum;
  IntervalKind interval = IntervalKind::kStudent;
  Scope scope = Scope::kSameKind;
  bool why = true, explain = false;
  std::vector<std::string> columns;  // as ReportOptions::columns
  std::vector<int> pass_k = {1, 10, 100};
  std::string control;  // label of the arm that quality is compared with; "" without a baseline
  std::vector<PartSpeed> parts;  // speed by category and language
  // By data set ("all" last), then batch size; arms in order, lossy ones after them, synthetic ones
  // last.
  std::vector<ReportRow> rows;
  bool exclude_degenerate = false;
  Conditions conditions;  // of the machine while the run was measured
  GpuDisturbances gpu_disturbances;
  int64_t hidden_faults = 0;  // generations with a planted fault, left out
  int64_t other_machine = 0;  // and of another machine than their prompt's plain decoding
};

// Throws data_error when the run does not exist or has no finished generation.
Report build_report(const results::ResultStore& store, int64_t run_id,
                    const ReportOptions& options = {});

// The run `name` means (see ResultStore::find_run; "" = newest), or a usage_error that lists some.
int64_t require_run(const results::ResultStore& store, const std::string& name);

// The best speedup of a data set and what fails stand out; LaTeX has a table per data set.
Document document(const Report& report);
std::string to_json(const Report& report);  // array of rows, keys in docs/json.md
// Of CSV: a column per key of the JSON; `quality` becomes quality_<evaluator> and
// quality_<evaluator>_n, and acceptance_by_node, a table of its own, is left out.
Table report_records(const Report& report);
struct PublishedVsMeasured;
// One page that needs nothing beside it: tables, charts, one generation of every arm (from `store`,
// the one the report was built from), published figures if there are any, definitions.
std::string to_html(const Report& report, const results::ResultStore& store,
                    const PublishedVsMeasured* claimed = nullptr);

}  // namespace evalrun::reports
