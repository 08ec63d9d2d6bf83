// What a report is asked for.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "reports/predict/step_costs.h"

namespace evalrun::reports {

// How the intervals of the "speedup" column and of tau are made: Student's t (estimators.h), or
// resampled prompts (bootstrap.h) with the run's key as seed.
enum class IntervalKind { kStudent, kBootstrap };

struct ReportOptions {
  Estimator estimator = Estimator::kSum;  // of the "speedup" column
  bool why = true;       // the columns that explain the speedup, in Markdown and text
  bool explain = false;  // what every column means, in Markdown and text
  // Columns of the comparison table by their names on the command line (comparison_columns());
  // empty = the usual ones, "all" = every one. Unknown: usage_error.
  std::vector<std::string> columns = {};
  bool parts = false;  // Report::parts, which only the page shows
  // Acceptance by depth and by node: every step of the run is read for it, which takes longer than
  // all else. Without, Acceptance::by_depth and by_node are empty.
  bool step_detail = true;
  // Which pass@k to show, 1 to 100; empty = 1, 10 and 100 where there are samples enough. Asked for
  // without samples enough: usage_error.
  std::vector<int> pass_k = {};
  // Label of the arm that quality is compared with; "" = the baseline. Unknown: usage_error.
  std::string control = {};
  // Leaves answers that run in a loop out of the speed figures of both arms. Otherwise they are
  // kept; they are counted in any case.
  bool exclude_degenerate = false;
  IntervalKind interval = IntervalKind::kStudent;
  Scope scope = Scope::kSameKind;  // of all intervals; the fixed set is a question for compare
  // T(n) as a run measured it, in milliseconds, empty where it did not: speedups of batches and the
  // best draft lengths are predicted from it, and plain decoding stands beside it. Without, none.
  std::function<RowTimes(const RunInfo&)> row_times = {};
};

}  // namespace evalrun::reports
