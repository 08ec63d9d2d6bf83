// A text file that is compiled into a library (cmake/EvalrunEmbed.cmake).
#pragma once
#include <string_view>

namespace evalrun::base {

struct EmbeddedFile {
  std::string_view name;  // relative to the BASE of the cmake call
  std::string_view text;
};

}  // namespace evalrun::base
