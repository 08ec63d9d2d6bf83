#include "runners/cli/gate/temporary_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::cli {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string& purpose) {
  std::error_code error;
  const fs::path where = fs::temp_directory_path(error);
  std::string name = (where / fmt::format("evalrun-{}-XXXXXX", purpose)).string();
  if (error || ::mkdtemp(name.data()) == nullptr)
    throw base::data_error(
        name, "", fmt::format("cannot be made: {}", error ? error.message() : std::strerror(errno)),
        "free some space or set TMPDIR");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace evalrun::cli
