// Values with a unit on the command line: shares and times.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace evalrun::cli {

// "3%" or "0.03": a share in [0, 1). "90s", "10m", "2h" or "90": seconds, 0 and more. nullopt for
// anything else.
std::optional<double> parse_share(const std::string& text);
std::optional<double> parse_seconds(const std::string& text);

// For options that hold the share, or the seconds, as a double: `option->transform(as_share())`.
CLI::Validator as_share();
CLI::Validator as_seconds();

}  // namespace evalrun::cli
