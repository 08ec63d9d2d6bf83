// A folder for databases and logs that only one command needs.
#pragma once
#include <filesystem>
#include <string>

namespace evalrun::cli {

// Under the system's temporary folder, empty; removed with all it holds when the object dies.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& purpose);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace evalrun::cli
