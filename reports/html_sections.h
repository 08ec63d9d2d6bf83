// Parts of the HTML page that are tables only.
#pragma once
#include <string>

#include "reports/claimed.h"
#include "reports/report.h"

namespace evalrun::reports {

// What the arms take, under a heading that opens it.
std::string memory_section(const Report& report);

// A table per data set: measured and published figure, their ratio, whose it is. "" for null.
std::string claims_section(const Claimed* claimed, const Report& report);

}  // namespace evalrun::reports
