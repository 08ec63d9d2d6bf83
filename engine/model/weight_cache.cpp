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
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
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
    case WeightStorage::kQ4Centred:
      return "q4-centred";
    case WeightStorage::kQ4K:
      return "q4-k";
    case WeightStorage::kQ5K:
      return "q5-k";
    case WeightStorage::kQ6K:
      return "q6-k";
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

WeightCache::WeightCache(const CachedWeights& contents, std::optional<int64_t> limit)
    : folder_(weight_folder()),
      header_(header_text(contents)),
      source_(contents.source),
      format_(contents.format),
      bytes_(contents.bytes) {
  if (folder_.empty()) return;
  if (limit == 0) {
    shrink(0);
    return;
  }
  limit_ = weight_limit(folder_, limit);
  stem_ = fmt::format("{}-{}-", contents.model_hash, contents.format);
  path_ = fmt::format("{}/{}{}.bin", folder_, stem_, kWeightLayoutVersion);
}

size_t WeightCache::file_bytes() const {
  return header_.size() + bytes_ + (chunks_of(bytes_) + 1) * sizeof(uint64_t) + kSourcePageBytes;
}

bool WeightCache::read(std::span<std::byte> weights, int n_threads) {
  EVALRUN_CHECK(weights.size() == bytes_, "{} bytes for a cache of {}", weights.size(), bytes_);
  if (path_.empty()) return false;
  // O_NONBLOCK: a named pipe in the file's place must not be waited for.
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return false;
  std::string reason;
  if (fd < 0) {
    reason = fmt::format("cannot be opened ({})", system_reason(errno));
  } else {
    hold_ = WeightFileHold(fd);
    reason = read_or_reason(weights, n_threads);
  }
  if (!reason.empty()) {
    fmt::print(stderr, "warning: {}: the stored weights {}; converting the model again\n", path_,
               reason);
    hold_ = {};
    return false;
  }
  const struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  (void)futimens(fd, times);  // last used; another user's file keeps its time
  shrink(limit_);
  return true;
}

std::string WeightCache::read_or_reason(std::span<std::byte> weights, int n_threads) const {
  const int fd = hold_.fd();
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

void WeightCache::write(std::span<const std::byte> weights, int n_threads) {
  EVALRUN_CHECK(weights.size() == bytes_, "{} bytes for a cache of {}", weights.size(), bytes_);
  if (path_.empty()) return;
  if (const std::string reason = write_or_reason(weights, n_threads); !reason.empty()) {
    fmt::print(stderr, "warning: {}: the converted weights are not kept: {}\n", path_, reason);
    return;
  }
  fmt::print(
      stderr,
      "note: {} weights of {} are kept for the next time: {} ({}; `evalrun data cache` lists "
      "and clears such files, EVALRUN_CACHE_MAX bounds them)\n",
      format_, source_, path_, base::format_bytes(file_bytes()));
  shrink(limit_);  // for what others put there in the meantime
}

// Brings what lies in the folder down to `limit` and says what went.
void WeightCache::shrink(int64_t limit) const {
  const std::vector<WeightFile> removed = shrink_weight_files(folder_, limit);
  if (removed.empty()) return;
  fmt::print(stderr, "note: {}: removed {} of converted weights ({}), bound {}\n", folder_,
             base::plural(static_cast<int64_t>(removed.size()), "file"),
             base::format_bytes(total_bytes(removed)), base::format_bytes(limit_));
}

// "", or why there is no room for the file.
std::string WeightCache::make_room() const {
  const auto bytes = static_cast<int64_t>(file_bytes());
  if (bytes > limit_)
    return fmt::format("they take {}, {} more than the {} of EVALRUN_CACHE_MAX",
                       base::format_bytes(bytes), base::format_bytes(bytes - limit_),
                       base::format_bytes(limit_));
  struct rlimit most {};  // writing past it would end the process
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < file_bytes())
    return "files of this size are not allowed here (ulimit -f)";
  shrink(limit_ - bytes);
  if (const int64_t left = total_bytes(weight_files(folder_)); left + bytes > limit_)
    return fmt::format("they take {}, and files in use {} of the {} of EVALRUN_CACHE_MAX",
                       base::format_bytes(bytes), base::format_bytes(left),
                       base::format_bytes(limit_));
  struct statvfs disk {};
  if (statvfs(folder_.c_str(), &disk) != 0) return system_reason(errno);
  if (const uint64_t room = uint64_t{disk.f_bavail} * disk.f_frsize; room < 2 * file_bytes())
    return fmt::format("they take {}, more than half of the {} of free disk",
                       base::format_bytes(bytes), base::format_bytes(room));
  return {};
}

std::string WeightCache::write_or_reason(std::span<const std::byte> weights, int n_threads) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return error.message();
  remove_older_layouts();
  if (std::string reason = make_room(); !reason.empty()) return reason;

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
  WeightFileHold hold(fd);
  const std::string source = source_page(source_);
  int failed = 0;
  if (!write_all(fd, header_.data(), header_.size()) ||
      !write_all(fd, weights.data(), weights.size()) ||
      !write_all(fd, checksums.data(), checksums.size() * sizeof(uint64_t)) ||
      !write_all(fd, source.data(), source.size()) || fsync(fd) != 0)
    failed = errno;
  const WeightFolderLock lock(folder_);
  if (failed == 0 && rename(temporary.c_str(), path_.c_str()) != 0) failed = errno;
  if (failed != 0) {
    unlink(temporary.c_str());
    return system_reason(failed);
  }
  hold_ = std::move(hold);
  return {};
}

void WeightCache::remove_older_layouts() const {
  (void)remove_weight_files(folder_, [&](const WeightFile& file) {
    return !file.is_partial && file.layout < kWeightLayoutVersion &&
           fs::path(file.path).filename().string().starts_with(stem_);
  });
}

}  // namespace evalrun::engine
