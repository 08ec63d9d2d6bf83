// The built-in suites (runners/suites/*.json, then runners/suites/papers/*.json), compiled into the
// library.
#pragma once
#include <span>
#include <string_view>

namespace evalrun::runners {

struct EmbeddedFile {
  std::string_view name, text;
};
std::span<const EmbeddedFile> embedded_suites();

}  // namespace evalrun::runners
