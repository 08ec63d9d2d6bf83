// A read-only memory-mapped file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace evalrun::engine {

// The bytes stay valid while the object lives. Whoever shortens the file meanwhile kills the
// process (SIGBUS), as with every mapping; replacing it by rename is safe.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws data_error
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel that the pages of `part` (inside bytes()) are not needed for now, so that they
  // do not count against a memory limit. Reading them again is allowed.
  void release(std::span<const uint8_t> part) const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace evalrun::engine
