// Our own sources in other languages, compiled into the program.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace evalrun::evaluators {

struct EmbeddedFile {
  std::string_view name, text;
};
std::span<const EmbeddedFile> embedded_support();

// Text of support/<name>.
std::string support_file(std::string_view name);

}  // namespace evalrun::evaluators
