// Pages for man(1).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runners/cli/shell/command_texts.h"

namespace evalrun::cli {

// "evalrun-baseline-save"; "evalrun" for the program.
std::string page_name(const CommandText& command);

// The page of `command`, one of `all`, as roff.
std::string man_page(const CommandText& command, const std::vector<CommandText>& all,
                     std::string_view version);

}  // namespace evalrun::cli
