// What `evalrun run --plan` shows.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "reports/compare/history.h"
#include "runners/plan/estimate.h"
#include "runners/plan/plan.h"

namespace evalrun::cli {

struct PlanReport {
  const runners::RunPlan& plan;
  runners::Calibration calibration;
  std::vector<runners::StepPrice> prices = {};  // of the arms; empty: what rows cost is not known
  int stored = 0;                               // generations of this run already in the database
  std::optional<reports::RunHistory> history = {};  // of an earlier run of the same arms
};
// A line per data set with its cells, time and the smallest change it can show, one for all of
// them, and the arms, on standard output.
void print_plan(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);

}  // namespace evalrun::cli
