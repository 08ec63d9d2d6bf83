// What a paper's table holds once it is filled in: columns, rows of cells, sentences.
#pragma once
#include <string>
#include <vector>

#include "reports/figures/report.h"
#include "reports/papers/cells.h"
#include "reports/papers/form.h"

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

}  // namespace evalrun::reports
