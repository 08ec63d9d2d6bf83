// What was given on the command line, beyond what CLI11 itself checks.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runners/cli/cli.h"

namespace evalrun::cli {

// Throws usage_error "NAME is not for WHY" for the first of `names` that the command line gives.
void refuse_given(const CLI::App& command, const std::vector<std::string>& names,
                  std::string_view why);

// Throws usage_error where --json and another format were given.
void check_format(const CLI::App& app, const GlobalOptions& global);

// `message`, followed by " (--draft)" where it repeats the value of an option without its name.
std::string with_option(const CLI::App& app, const std::string& message);

}  // namespace evalrun::cli
