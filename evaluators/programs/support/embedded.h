// Our own sources in other languages, compiled into the program.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "engine/base/embedded_file.h"

namespace evalrun::evaluators {

std::span<const base::EmbeddedFile> embedded_support();

// Text of support/<name>.
std::string support_file(std::string_view name);

}  // namespace evalrun::evaluators
