#include "engine/base/home.h"

#include <cstdlib>

namespace evalrun::base {

std::filesystem::path home_folder() {
  if (const char* home = std::getenv("EVALRUN_HOME"); home != nullptr && *home != '\0') return home;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".cache" / "evalrun";
  return {};
}

}  // namespace evalrun::base
