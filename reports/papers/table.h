// A run in the form of a paper's table (form.h), published figures beside the measured ones
// where a claims file is given. Every figure is in the paper's unit and convention.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/figures/report.h"
#include "reports/papers/form.h"
#include "reports/papers/paper_table.h"
#include "results/store.h"

namespace evalrun::reports {

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
