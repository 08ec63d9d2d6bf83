// Where tests put their files. They run beside each other, and so do two builds of one machine: a
// path that is the same for all of them is truncated by one while another reads it.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/base/text.h"

namespace evalrun::tests {

// A folder of its own per object, removed with its contents at the end.
class TempFolder {
 public:
  TempFolder() {
    path_ = (std::filesystem::temp_directory_path() / "evalrun-test-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Writes the file, and the folders above it; returns its full path.
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path target = file(name);
    std::filesystem::create_directories(target.parent_path());
    // Truncating a file in place makes some file systems flush it at once; a new one does not.
    std::filesystem::remove(target);
    std::ofstream(target, std::ios::binary) << bytes;
    return target.string();
  }
  std::string write_program(const std::string& name, std::string_view script) const {
    const std::string path = write(name, script);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  std::string read(const std::string& name) const { return base::read_file(file(name)); }

 private:
  std::string path_;
};

}  // namespace evalrun::tests
