// T(n) as `evalrun cost --json` writes it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "engine/cost/row_cost.h"

namespace evalrun::cli {

// Throws data_error: no JSON, several tables, none, or one of several sequences together.
engine::RowCostTable row_cost_in_file(const std::string& file);
// The same of what is read already.
engine::RowCostTable row_cost_of(const nlohmann::json& json, const std::string& file);

}  // namespace evalrun::cli
