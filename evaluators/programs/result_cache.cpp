#include "evaluators/programs/result_cache.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::evaluators {
namespace fs = std::filesystem;

std::string ResultCache::path_of(const std::string& key) const {
  return (fs::path(root_) / "programs" / key.substr(0, 2) / (key.substr(2) + ".json")).string();
}

std::optional<std::string> ResultCache::find(const std::string& key) const {
  const std::string path = path_of(key);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    return base::read_file(path);
  } catch (const base::Error&) {
    return std::nullopt;  // running it again costs less than stopping
  }
}

void ResultCache::store(const std::string& key, const std::string& text) const {
  static std::atomic<int> counter = 0;
  const fs::path path = path_of(key);
  const fs::path beside = path.string() + fmt::format(".{}.{}", ::getpid(), counter++);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(beside, std::ios::binary);
  file << text;
  file.close();
  if (file) fs::rename(beside, path, error);
  if (!file || error) fs::remove(beside, error);
}

}  // namespace evalrun::evaluators
