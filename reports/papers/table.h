// A run in the form of a paper's table (form.h), published figures beside the measured ones
// where a claims file is given. Every figure is in the paper's unit and convention.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/figures/report.h"
#include "reports/papers/cells.h"
#include "reports/papers/form.h"
#include "results/store.h"

namespace evalrun::reports {

struct PaperColumn {
  std::string group, label;  // "XSum", "Speedup"
  FormMetric metric;
  std::string model;       // published for this one, where models are columns; "" = measured
  std::string definition;  // anchor of docs/measurement.md
};

struct PaperRow {
  bool measured = true;  // false: a published model's. Where models are columns: always true
  std::string model, label;
  std::string arm;  // label of the arm; "" where there is none, or where arms are columns
  bool lossy = false;
  std::vector<PaperCell> cells;  // one per column
};

struct PaperTable {
  const PaperForm* form = nullptr;
  RunInfo run;
  std::string model;    // measured
  std::string caption;  // "SPACE, Table 1: ..."
  std::vector<PaperColumn> columns;
  std::vector<PaperRow> rows;
  std::vector<std::string> notes;  // what was measured, what is published, marks: a sentence each
  std::vector<std::string>
      details;  // what the columns are, where the published figures are doubtful
};

// What to do with a form of equal budgets whose adapters were not trained alike. One that is left
// out is named under the last table, unless no table is left: then all are refused.
enum class UnequalBudgets { kRefuse, kLeaveOut, kMark };

// The tables of `forms` that this run has something for, one per form and model. `claims` with an
// empty file name: no published figures. Throws usage_error when there is none, saying what would
// be needed, and for unequal budgets, naming the arms and what differs. `left_out` gets a sentence
// for each form that is left out.
std::vector<PaperTable> paper_tables(const results::ResultStore& store, int64_t run_id,
                                     const ReportOptions& options,
                                     const std::vector<const PaperForm*>& forms,
                                     const Claims& claims,
                                     UnequalBudgets unequal = UnequalBudgets::kRefuse,
                                     std::vector<std::string>* left_out = nullptr);

// CSV and JSON have a line or object per cell that holds a figure.
Document document(const std::vector<PaperTable>& tables);
std::string to_json(const std::vector<PaperTable>& tables);

}  // namespace evalrun::reports
