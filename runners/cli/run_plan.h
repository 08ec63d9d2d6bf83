// What `evalrun run --plan` shows.
#pragma once
#include "results/store.h"
#include "runners/estimate.h"
#include "runners/plan.h"

namespace evalrun::cli {

struct PlanReport {
  const runners::RunPlan& plan;
  runners::Calibration calibration;
  int stored = 0;  // generations of this run already in the database
};
// Cells, counts, time and detectable effect, on standard output.
void print_plan(const PlanReport& report, bool as_json);

}  // namespace evalrun::cli
