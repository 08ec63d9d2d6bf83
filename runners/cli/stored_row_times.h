// T(n) as a run measured it before its first token.
#pragma once
#include "reports/data/run_data.h"
#include "reports/predict/step_costs.h"

namespace evalrun::cli {

// With its own model, in milliseconds, of one sequence and of its batches; empty when it has none.
reports::RowTimes stored_row_times(const reports::RunInfo& run);

}  // namespace evalrun::cli
