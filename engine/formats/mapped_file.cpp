#include "engine/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

// Closes on every way out of the constructor; the mapping outlives the descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a named pipe by mistake must not wait for a writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const int error = errno;
    throw base::data_error(path, "", fmt::format("cannot be opened: {}", std::strerror(error)),
                           error == ENOENT ? "check the path" : "check its permissions");
  }
  struct stat info {};
  if (fstat(file.fd, &info) != 0)
    throw base::data_error(path, "", fmt::format("cannot be read: {}", std::strerror(errno)));
  if (S_ISDIR(info.st_mode)) throw base::data_error(path, "", "is a folder, not a file");
  if (!S_ISREG(info.st_mode))
    throw base::data_error(path, "", "is not a regular file (a pipe or device?)",
                           "copy it to a file first");
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;  // mmap refuses empty files; an empty span says the same
  void* mapping = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (mapping == MAP_FAILED)
    throw base::data_error(path, "", fmt::format("cannot be mapped: {}", std::strerror(errno)));
  data_ = static_cast<const uint8_t*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

namespace {

// Applies `advice` to the whole pages inside `part`: its neighbours may be needed for something
// else. False when the kernel refuses.
bool advise(std::span<const uint8_t> part, int advice) {
  if (part.empty()) return true;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  return begin >= end || madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0;
}

}  // namespace

void MappedFile::prefetch(std::span<const uint8_t> part) const { advise(part, MADV_WILLNEED); }

void MappedFile::release(std::span<const uint8_t> part) const { advise(part, MADV_DONTNEED); }

void MappedFile::populate(std::span<const uint8_t> part) const {
#ifdef MADV_POPULATE_READ
  if (advise(part, MADV_POPULATE_READ)) return;
#endif
  prefetch(part);
}

}  // namespace evalrun::engine
