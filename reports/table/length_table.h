// The table of best draft lengths by batch and context: predicted, and measured.
#pragma once
#include <string>
#include <vector>

#include "reports/document/document.h"
#include "reports/figures/report_row.h"

namespace evalrun::reports {

// Of rows of one data set; adds nothing where none has ReportRow::batch->lengths.
void add_draft_lengths(const std::vector<const ReportRow*>& rows, const std::string& dataset,
                       Document& d);

}  // namespace evalrun::reports
