// The part of a report about batches: throughput, times that sequences wait, up to which batch a
// method pays.
#pragma once
#include <string>

#include "reports/document/document.h"
#include "reports/figures/report.h"

namespace evalrun::reports {

// Of one data set, or of all of them; adds nothing where the run has no batch above 1.
void add_batches(const Report& report, const std::string& dataset, Document& d);

}  // namespace evalrun::reports
