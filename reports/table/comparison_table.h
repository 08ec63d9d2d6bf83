// The tables of one data set: speed, quality, differences from the control, what explains the
// speedup.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "reports/document/document.h"
#include "reports/figures/report.h"

namespace evalrun::reports {

// A data set's rows as tables show them, batch by batch: plain decoding first, methods that are not
// lossless last, the A/A arms separately.
struct DatasetRows {
  DatasetRows(const Report& report, const std::string& dataset);
  std::vector<const ReportRow*> all() const { return rows; }
  std::vector<const ReportRow*> rows;
  std::vector<const ReportRow*> aa;
  // Over rows: which batch, where there are several, and what is not lossless; the batches alone.
  std::map<size_t, std::string> titles, batches;
  // The arm's label, without the batch where a title says it.
  std::string name(const ReportRow& r) const;
};

// Whether an interval of the row's speeds has a star: it is from few prompts.
bool has_star(const Report& report, const ReportRow& r);

// What the mark after some methods' names means (training_overlap.h); "" where none has it.
std::string overlap_note(const DatasetRows& rows);
// The same of the mark of flattered.h.
std::string flatters_note(const DatasetRows& rows);

// Every format has these columns in this order; which it has room for, the columns say.
Table comparison_table(const Report& report, const std::string& dataset, const DatasetRows& rows);
// What ReportOptions::columns may name: "all", then the columns in their order.
std::vector<std::string> column_names();
// Arms that are ranked, the fastest first: differences from it and ranks. No rows for fewer than
// three methods.
Table ranking_table(const DatasetRows& rows);
// A column per evaluator, or per k of pass@k; no rows where nothing was scored.
Table quality_table(const Report& report, const std::string& dataset, const DatasetRows& rows);
// Whether a difference of the table has a star: few prompts differ.
bool few_prompts_differ(const Table& control_table);
inline constexpr const char* kFewPromptsDiffer = "fewer than 20 prompts differ, indicative only";
// Scores that are not the control's, paired per prompt.
Table control_table(const Report& report, const DatasetRows& rows);
Table why_table(const DatasetRows& rows);

}  // namespace evalrun::reports
