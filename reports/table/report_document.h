// The report as a Document.
#pragma once
#include <string>

#include "reports/document/document.h"
#include "reports/figures/report.h"

namespace evalrun::reports {

// A data set's tables and what belongs to them, for the page, which folds them.
void add_dataset(const Report& report, const std::string& dataset, Document& document);

}  // namespace evalrun::reports
