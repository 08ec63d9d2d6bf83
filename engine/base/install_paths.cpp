#include "engine/base/install_paths.h"

namespace evalrun::base {
namespace fs = std::filesystem;

fs::path program_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

fs::path shipped_path(std::string_view relative) {
  return shipped_path(program_folder(), relative);
}

fs::path shipped_path(const fs::path& bin_folder, std::string_view relative) {
  if (bin_folder.empty()) return {};
  std::error_code error;
  fs::path found = fs::canonical(bin_folder.parent_path() / relative, error);
  return error ? fs::path() : found;
}

}  // namespace evalrun::base
