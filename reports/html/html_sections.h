// Parts of the HTML page that are tables only.
#pragma once
#include <string>

#include "reports/claims/published_vs_measured.h"
#include "reports/figures/report.h"

namespace evalrun::reports {

// Under a title that opens it.
std::string folded(const std::string& title, const Document& content, bool open = false);

// The tables of every data set, of memory and, for a run on a GPU, of its use.
std::string dataset_sections(const Report& report);

// A table per data set: measured and published figure, their ratio, whose it is. "" for null.
std::string claims_section(const PublishedVsMeasured* claimed, const Report& report);

}  // namespace evalrun::reports
