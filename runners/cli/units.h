// Values with a unit on the command line: shares and times.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string_view>

namespace evalrun::cli {

// "3%" or "0.03": a share in [0, 1). nullopt for anything else.
std::optional<double> parse_share(std::string_view text);

// For options that hold the share, or the seconds, as a double: `option->transform(as_share())`.
CLI::Validator as_share();
CLI::Validator as_seconds();

}  // namespace evalrun::cli
