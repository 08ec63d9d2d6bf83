// Parts of the HTML page that are tables only.
#pragma once
#include <string>

#include "reports/claims/claimed.h"
#include "reports/table/report.h"

namespace evalrun::reports {

// A label of an arm, which narrow columns may break between its parameters.
std::string arm_label(const std::string& label);

// What the arms take, under a heading that opens it.
std::string memory_section(const Report& report);
std::string gpu_section(const Report& report);  // "" for a run on the CPU

// A table per data set: measured and published figure, their ratio, whose it is. "" for null.
std::string claims_section(const Claimed* claimed, const Report& report);

}  // namespace evalrun::reports
