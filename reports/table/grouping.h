// Speedup, tau and alpha of every method side by side for several models or settings, or for the
// parts of a data set, with mean and deviation over them, as papers print them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "reports/figures/report.h"
#include "reports/table/training_overlap.h"

namespace evalrun::reports {

struct GroupCell {
  std::optional<double> value;  // absent where the method was not measured or has no such figure
  std::optional<base::Interval> interval;  // as the report's
  int64_t n_prompts = 0;
  double n_eff = 0;              // of the interval
  TrainingOverlap overlap = {};  // of the arm that was measured here
  std::string flattered = {};    // its flattered_by()
};

struct GroupedRow {
  std::string figure;  // "speedup", "tok_s", "tau" or "alpha_draft", as in docs/measurement.md
  std::string method;
  bool lossy = false, synthetic = false;
  std::vector<GroupCell> cells;  // one per group of the table
  // Over the groups that have a value: how many, their plain mean, and with two or more of them
  // their standard deviation (n - 1).
  int64_t n_groups = 0;
  std::optional<double> mean, sd;
};

struct GroupedTable {
  std::string dataset;
  std::vector<std::string> groups;  // in the order of the runs, parts in that of the prompts
  // By figure, then methods as in the report: lossy ones after the others, synthetic ones last.
  std::vector<GroupedRow> rows;
};

struct GroupedReport {
  // What the groups are: "model", "setting", "model, setting", "category", "category, language",
  // ...
  std::string axis;
  std::vector<RunInfo> runs;
  Estimator estimator = Estimator::kSum;
  std::vector<GroupedTable> tables;
};

// A column per report, named by the model of its baseline arm; where models repeat, by the settings
// that differ as well, such as "dtype=q4, threads=2"; and where none does, by the run. A table per
// data set of any of them. Where settings differ, tokens per second are a figure, too: there plain
// decoding has a row; elsewhere it is left out, for it is 1 by definition. Throws usage_error for
// fewer than two reports, for the same run twice, and where nothing but plain decoding was
// measured.
GroupedReport group_by_run(const std::vector<Report>& reports);

// A column per part of a data set, from a report of parts (results::regrouped by `axis`): what
// stands after the first " / " of a row's data set, "-" for prompts that have none. Throws
// usage_error where no data set has parts.
GroupedReport group_by_part(const Report& report, const std::string& axis);

Document document(const GroupedReport& report);    // CSV has a line per method, figure and group
std::string to_json(const GroupedReport& report);  // keys in docs/measurement.md

}  // namespace evalrun::reports
