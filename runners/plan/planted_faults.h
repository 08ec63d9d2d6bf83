// Which arms of a suite get a planted fault: of the gate's self-test.
#pragma once
#include <map>
#include <string>

#include "runners/plan/suite.h"

namespace evalrun::runners {

// usage_error for anything planted_faults() does not know.
void check_fault_name(const std::string& fault);

// As PlanRequest::faults. One of methods/faults.h goes into the suite's first method arm,
// "ar-slow:5%" into plain decoding, "all-slow:5%" into both; at the suite's smallest batch alone.
// Throws usage_error for a suite without a method besides AR.
std::map<std::string, std::string> planted_faults(const Suite& suite, const std::string& fault);

}  // namespace evalrun::runners
