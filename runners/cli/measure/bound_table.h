// Of `evalrun verify --bound`: what the arms' steps keep beside the most that any lossless rule
// could (runners/verify/acceptance_bound.h).
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

namespace evalrun::cli {

// Prints a table of the certificates that have a bound, and what its columns are; nothing where
// none has.
void print_bounds(const std::vector<nlohmann::ordered_json>& certificates);

}  // namespace evalrun::cli
