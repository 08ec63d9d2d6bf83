// The report as a Document.
#pragma once
#include <string>

#include "reports/document/document.h"
#include "reports/figures/report.h"

namespace evalrun::reports {

// A data set's tables and what belongs to them, for the page, which folds them. `with_answer`: what
// to switch on first (answer.h).
void add_dataset(const Report& report, const std::string& dataset, bool with_answer,
                 Document& document);

}  // namespace evalrun::reports
