#include "engine/model/weight_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/model/loaders.h"
#include "engine/model/parallel_for.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{1} << 20;  // bytes under one checksum, read by one thread
constexpr size_t kHeaderAlignment = 4096;   // the weights start on a page

std::string_view storage_name(WeightStorage s) {
  switch (s) {
    case WeightStorage::kF32:
      return "f32";
    case WeightStorage::kBf16:
      return "bf16";
    case WeightStorage::kInt8Channel:
      return "int8-channel";
    case WeightStorage::kInt8Group:
      return "int8-group";
    case WeightStorage::kQ4Group:
      return "q4-group";
  }
  return "";
}

std::string header_text(const CachedWeights& c) {
  nlohmann::json matrices = nlohmann::json::array();
  for (const CachedMatrix& m : c.matrices)
    matrices.push_back({{"name", m.name},
                        {"storage", storage_name(m.storage)},
                        {"out", m.out},
                        {"in", m.in},
                        {"offset", m.offset},
                        {"bytes", m.bytes}});
  const nlohmann::json header = {{"evalrun", "weights"},  {"layout", kWeightLayoutVersion},
                                 {"model", c.model_hash}, {"format", c.format},
                                 {"bytes", c.bytes},      {"matrices", std::move(matrices)}};
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + kHeaderAlignment) / kHeaderAlignment * kHeaderAlignment, ' ');
  text.back() = '\n';
  return text;
}

size_t chunks_of(size_t bytes) { return (bytes + kChunk - 1) / kChunk; }

template <typename Byte>
std::span<Byte> chunk_of(std::span<Byte> weights, size_t i) {
  return weights.subspan(i * kChunk, std::min(kChunk, weights.size() - i * kChunk));
}

// The checksums of all chunks as they stand at the end of a file, the one over them last.
std::vector<uint64_t> sealed(std::vector<uint64_t> checksums) {
  checksums.push_back(XXH3_64bits(checksums.data(), checksums.size() * sizeof(uint64_t)));
  return checksums;
}

bool read_all(int fd, void* to, size_t bytes, size_t at) {
  auto* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = pread(fd, p, bytes, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, at += static_cast<size_t>(n), bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int fd, const void* from, size_t bytes) {
  const auto* p = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

std::string system_reason(int error) { return std::strerror(error); }

}  // namespace

WeightCache::WeightCache(const CachedWeights& contents)
    : header_(header_text(contents)), bytes_(contents.bytes) {
  const fs::path home = base::home_folder();
  if (home.empty()) return;
  stem_ = fmt::format("{}-{}-", contents.model_hash, contents.format);
  path_ = (home / "weights" / fmt::format("{}{}.bin", stem_, kWeightLayoutVersion)).string();
}

size_t WeightCache::file_bytes() const {
  return header_.size() + bytes_ + (chunks_of(bytes_) + 1) * sizeof(uint64_t);
}

bool WeightCache::read(std::span<std::byte> weights, int n_threads) const {
  EVALRUN_CHECK(weights.size() == bytes_, "{} bytes for a cache of {}", weights.size(), bytes_);
  if (path_.empty()) return false;
  // O_NONBLOCK: a named pipe in the file's place must not be waited for.
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return false;
  std::string reason;
  if (fd < 0) {
    reason = fmt::format("cannot be opened ({})", system_reason(errno));
  } else {
    reason = read_or_reason(fd, weights, n_threads);
    close(fd);
  }
  if (!reason.empty())
    fmt::print(stderr, "warning: {}: the stored weights {}; converting the model again\n", path_,
               reason);
  return reason.empty();
}

std::string WeightCache::read_or_reason(int fd, std::span<std::byte> weights, int n_threads) const {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return "are not a regular file";
  if (static_cast<size_t>(info.st_size) != file_bytes())
    return fmt::format("take {} bytes instead of {}", info.st_size, file_bytes());
  std::string header(header_.size(), '\0');
  std::vector<uint64_t> checksums(chunks_of(bytes_) + 1);
  if (!read_all(fd, header.data(), header.size(), 0) ||
      !read_all(fd, checksums.data(), checksums.size() * sizeof(uint64_t), header_.size() + bytes_))
    return "cannot be read";
  if (header != header_) return "are of another model or version";
  if (sealed({checksums.begin(), checksums.end() - 1}) != checksums) return "are damaged";

  std::atomic<bool> is_unreadable{false}, is_damaged{false};
  parallel_for(n_threads, chunks_of(bytes_), [&](size_t i) {
    if (is_unreadable || is_damaged) return;
    const std::span<std::byte> chunk = chunk_of(weights, i);
    if (!read_all(fd, chunk.data(), chunk.size(), header_.size() + i * kChunk))
      is_unreadable = true;
    else if (XXH3_64bits(chunk.data(), chunk.size()) != checksums[i])
      is_damaged = true;
  });
  return is_unreadable ? "cannot be read" : is_damaged ? "are damaged" : "";
}

void WeightCache::write(std::span<const std::byte> weights, int n_threads) const {
  EVALRUN_CHECK(weights.size() == bytes_, "{} bytes for a cache of {}", weights.size(), bytes_);
  if (path_.empty()) return;
  if (const std::string reason = write_or_reason(weights, n_threads); !reason.empty())
    fmt::print(stderr, "warning: {}: the converted weights are not kept: {}\n", path_, reason);
}

std::string WeightCache::write_or_reason(std::span<const std::byte> weights, int n_threads) const {
  std::error_code error;
  const fs::path folder = fs::path(path_).parent_path();
  fs::create_directories(folder, error);
  if (error) return error.message();
  remove_leftovers();
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return system_reason(errno);
  if (const uint64_t room = uint64_t{disk.f_bavail} * disk.f_frsize; room < 2 * file_bytes())
    return fmt::format("they take {} MB, more than half of the {} MB of free disk",
                       file_bytes() >> 20, room >> 20);
  struct rlimit limit {};  // writing past it would end the process
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < file_bytes())
    return "files of this size are not allowed here (ulimit -f)";

  std::vector<uint64_t> checksums(chunks_of(bytes_));
  parallel_for(n_threads, checksums.size(), [&](size_t i) {
    const std::span<const std::byte> chunk = chunk_of(weights, i);
    checksums[i] = XXH3_64bits(chunk.data(), chunk.size());
  });
  checksums = sealed(std::move(checksums));

  static std::atomic<int> counter{0};  // several models may be loaded at once
  const std::string temporary = fmt::format("{}.tmp.{}.{}", path_, getpid(), counter++);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return system_reason(errno);
  int failed = 0;
  if (!write_all(fd, header_.data(), header_.size()) ||
      !write_all(fd, weights.data(), weights.size()) ||
      !write_all(fd, checksums.data(), checksums.size() * sizeof(uint64_t)) || fsync(fd) != 0)
    failed = errno;
  if (close(fd) != 0 && failed == 0) failed = errno;
  if (failed == 0 && rename(temporary.c_str(), path_.c_str()) != 0) failed = errno;
  if (failed == 0) return {};
  unlink(temporary.c_str());
  return system_reason(failed);
}

// Files of older layouts of the same model and format, and what killed processes left behind.
void WeightCache::remove_leftovers() const {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(path_).parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".bin.tmp.") != std::string::npos) {
      if (now - entry.last_write_time(error) > std::chrono::hours(1) && !error)
        fs::remove(entry.path(), error);
      continue;
    }
    if (!name.starts_with(stem_) || !name.ends_with(".bin")) continue;
    int layout = 0;
    const char* end = name.data() + name.size() - 4;
    const auto [last, bad] = std::from_chars(name.data() + stem_.size(), end, layout);
    if (bad == std::errc() && last == end && layout < kWeightLayoutVersion)
      fs::remove(entry.path(), error);
  }
}

}  // namespace evalrun::engine
