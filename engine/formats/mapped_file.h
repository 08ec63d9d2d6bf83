// A read-only memory-mapped file.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace evalrun::engine {

class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws data_error
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace evalrun::engine
