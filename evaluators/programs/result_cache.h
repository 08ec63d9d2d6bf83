// Results of programs on disk, by everything that decides them.
#pragma once
#include <optional>
#include <string>

namespace evalrun::evaluators {

// One small file per result under `root`/programs. Safe for several processes: files are written
// beside and renamed. A file that cannot be read or written counts as missing.
class ResultCache {
 public:
  explicit ResultCache(std::string root) : root_(std::move(root)) {}
  std::optional<std::string> find(const std::string& key) const;
  void store(const std::string& key, const std::string& text) const;

 private:
  std::string path_of(const std::string& key) const;
  std::string root_;
};

}  // namespace evalrun::evaluators
