// The report for readers, from the report for programs.
#pragma once
#include <string>

#include "tests/gpu/report/measure.h"

namespace evalrun::engine::gpu_report {

std::string markdown(const Json& report);
// "Predicted bits (hopper): as predicted, ...", or where they first differ. `predicted`: that part
// of the report.
std::string predicted_bits_line(const Json& predicted);

}  // namespace evalrun::engine::gpu_report
