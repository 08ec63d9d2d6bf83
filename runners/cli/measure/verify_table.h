// What `evalrun verify` prints of methods' certificates.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

namespace evalrun::cli {

// As runners::to_json() of a certificate makes them, in the order of the rows.
void print_certificates(const std::vector<nlohmann::ordered_json>& certificates);

}  // namespace evalrun::cli
