// What `evalrun compare --tokens` shows.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "results/merge/compare_tokens.h"

namespace evalrun::cli {

// "equal", or what differs and the first places.
std::string token_differences_text(const results::TokenComparison& comparison);
nlohmann::ordered_json token_differences_json(const results::TokenComparison& comparison);

}  // namespace evalrun::cli
