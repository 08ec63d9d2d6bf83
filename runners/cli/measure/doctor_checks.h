// The measurements of `evalrun doctor`, each a second at most.
#pragma once
#include <string>
#include <vector>

namespace evalrun::cli {

// Runs a small random model on every instruction-set path, rows alone and together, and compares
// bits with the reference path. Returns one line per difference; empty when all agree.
std::vector<std::string> compare_isa_paths();

// Time the decode loop adds to a step: steps of a method that does nothing, in nanoseconds (median
// of several generations).
double measure_step_overhead_ns();

}  // namespace evalrun::cli
