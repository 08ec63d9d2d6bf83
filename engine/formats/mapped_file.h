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
  // Hints to the kernel about a part of bytes(): it will be read soon; it is not needed for now and
  // should not count against a memory limit (reading it again is allowed).
  void prefetch(std::span<const uint8_t> part) const;
  void release(std::span<const uint8_t> part) const;
  // Reads a part now and maps its pages, so that whoever is timed later meets no page fault. Where
  // the kernel cannot (before Linux 5.14, no memory), the same as prefetch().
  void populate(std::span<const uint8_t> part) const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace evalrun::engine
