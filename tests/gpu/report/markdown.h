// The report for readers, from the report for programs.
#pragma once
#include <string>

#include "tests/gpu/report/measure.h"

namespace evalrun::engine::gpu_report {

std::string markdown(const Json& report);

}  // namespace evalrun::engine::gpu_report
