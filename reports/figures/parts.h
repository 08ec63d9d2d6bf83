// Speed by part of a data set: category and language of the prompts, from the rows a report has
// loaded anyhow.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/estimators.h"
#include "reports/data/run_data.h"

namespace evalrun::reports {

struct PartSpeed {
  std::string arm, dataset, axis, part;  // axis: "category" or "language"
  int64_t n_prompts = 0;                 // paired with the reference arm
  double speedup = 0;                    // ratio of sums, or geometric mean
  std::optional<base::Interval> interval;
  double n_eff = 0;  // Estimate
  std::optional<double> tau;
};

// Of the arms that draft, arm by arm, every data set with two parts or more; parts by name.
std::vector<PartSpeed> speed_by_part(const RunData& data, Estimator estimator);

}  // namespace evalrun::reports
