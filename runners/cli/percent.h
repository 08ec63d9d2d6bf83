// Shares on the command line: "3%" or "0.03".
#pragma once
#include <string>

namespace evalrun::cli {

// A share from 0 up to, not including, 1. Throws usage_error naming the option.
double parse_share(const std::string& option, const std::string& text);

}  // namespace evalrun::cli
