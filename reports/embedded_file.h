// A text file that is compiled into the library (cmake/EvalrunEmbed.cmake).
#pragma once
#include <string_view>

namespace evalrun::reports {

struct EmbeddedFile {
  std::string_view name, text;
};

}  // namespace evalrun::reports
