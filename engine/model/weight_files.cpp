#include "engine/model/weight_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/base/text.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr std::string_view kEnding = ".bin", kPartial = ".bin.tmp.";
// A file that is being written is locked as soon as it exists. The time between is far shorter.
constexpr int64_t kLockedAfterNs = 60 * kNsPerSecond;
// Where there are no locks, a file that was not written to for so long is nobody's.
constexpr int64_t kAbandonedAfterNs = 3600 * kNsPerSecond;

int64_t now_ns() {
  struct timespec now {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kNsPerSecond + now.tv_nsec;
}

// True when the lock was got within `ms`.
bool lock_within(int fd, int kind, int ms) {
  for (int waited = 0;; ++waited) {
    if (flock(fd, kind | LOCK_NB) == 0) return true;
    if ((errno != EWOULDBLOCK && errno != EINTR) || waited >= ms) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

enum class Holder { kNobody, kSomebody, kUnknown };  // kUnknown: no locks on this file system

// Whether somebody holds the file. With kNobody and `fd` not yet closed, nobody can begin to.
Holder holder_of(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return Holder::kNobody;
  return errno == EWOULDBLOCK ? Holder::kSomebody : Holder::kUnknown;
}

int open_to_look(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
}

// "<model>-<format>-<layout>.bin", or the same with ".tmp.<process>.<number>".
std::optional<WeightFile> named_file(const std::string& name) {
  WeightFile file;
  const size_t partial = name.find(kPartial);
  file.is_partial = partial != std::string::npos;
  if (!file.is_partial && !name.ends_with(kEnding)) return std::nullopt;
  const std::string_view stem =
      std::string_view(name).substr(0, file.is_partial ? partial : name.size() - kEnding.size());
  const size_t first = stem.find('-'), last = stem.rfind('-');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  file.model = stem.substr(0, first);
  file.format = stem.substr(first + 1, last - first - 1);
  const char* end = stem.data() + stem.size();
  const auto [stop, error] = std::from_chars(stem.data() + last + 1, end, file.layout);
  if (error != std::errc() || stop != end) return std::nullopt;
  return file;
}

std::string source_of(int fd, int64_t bytes) {
  const auto page = static_cast<int64_t>(kSourcePageBytes);
  std::string text(kSourcePageBytes, '\0');
  if (bytes < page || pread(fd, text.data(), text.size(), bytes - page) != page) return {};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return {};  // of an older layout
  const auto source = json.find("source");
  return source != json.end() && source->is_string() ? source->get<std::string>() : "";
}

// The caller holds the folder's lock. `may_go` is asked for files that nobody holds.
std::vector<WeightFile> remove_where(const std::string& folder,
                                     const std::function<bool(const WeightFile&)>& may_go) {
  std::vector<WeightFile> removed;
  for (const WeightFile& file : weight_files(folder)) {
    if (file.in_use || !may_go(file)) continue;
    const int fd = open_to_look(file.path);
    struct stat opened {
    }, named{};
    const bool is_free = fd >= 0 && holder_of(fd) != Holder::kSomebody && fstat(fd, &opened) == 0 &&
                         lstat(file.path.c_str(), &named) == 0 && opened.st_ino == named.st_ino;
    if (is_free && unlink(file.path.c_str()) == 0) removed.push_back(file);
    if (fd >= 0) close(fd);
  }
  return removed;
}

std::optional<int64_t> size_in(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  const std::string unit(base::trim(std::string_view(stop, static_cast<size_t>(end - stop))));
  if (unit.empty() && value == 0) return 0;
  constexpr std::pair<const char*, double> kUnits[] = {{"B", 1},
                                                       {"kB", 1e3},
                                                       {"KB", 1e3},
                                                       {"MB", 1e6},
                                                       {"GB", 1e9},
                                                       {"TB", 1e12},
                                                       {"KiB", 1024.0},
                                                       {"MiB", 1048576.0},
                                                       {"GiB", 1073741824.0},
                                                       {"TiB", 1099511627776.0}};
  for (const auto& [name, factor] : kUnits)
    if (unit == name && value * factor < 9e18) return static_cast<int64_t>(value * factor);
  return std::nullopt;
}

}  // namespace

WeightFileHold::WeightFileHold(int fd) : fd_(fd) {
  // Whoever asks for a moment whether it is free keeps others from locking it for that moment.
  if (fd >= 0) (void)lock_within(fd, LOCK_SH, 200);
}

WeightFileHold::~WeightFileHold() {
  if (fd_ >= 0) close(fd_);
}

WeightFolderLock::WeightFolderLock(const std::string& folder)
    : fd_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ >= 0) (void)lock_within(fd_, LOCK_EX, 2000);
}

WeightFolderLock::~WeightFolderLock() {
  if (fd_ >= 0) close(fd_);
}

std::string weight_folder() {
  const fs::path home = base::home_folder();
  return home.empty() ? "" : (home / "weights").string();
}

std::optional<int64_t> weight_limit_variable() {
  const char* text = std::getenv("EVALRUN_CACHE_MAX");
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<int64_t> bytes = size_in(text);
  if (!bytes)
    throw base::usage_error(
        fmt::format("EVALRUN_CACHE_MAX is '{}', which is no size", text),
        "give a number with a unit (MB, GB, TB; MiB, GiB, TiB), e.g. 20GB, or 0 to keep nothing");
  return bytes;
}

int64_t weight_limit(const std::string& folder, std::optional<int64_t> chosen) {
  if (chosen) return *chosen;
  constexpr int64_t kAtLeast = 10'000'000'000;
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return kAtLeast;
  const auto available = static_cast<int64_t>(uint64_t{disk.f_bavail} * disk.f_frsize);
  return std::max(kAtLeast, (available + total_bytes(weight_files(folder))) / 10);
}

std::vector<WeightFile> weight_files(const std::string& folder) {
  std::vector<WeightFile> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::optional<WeightFile> file = named_file(entry.path().filename().string());
    if (!file) continue;
    file->path = entry.path().string();
    struct stat info {};
    if (lstat(file->path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    file->bytes = info.st_size;
    file->last_used_ns = int64_t{info.st_mtim.tv_sec} * kNsPerSecond + info.st_mtim.tv_nsec;
    if (const int fd = open_to_look(file->path); fd >= 0) {
      const Holder holder = holder_of(fd);
      file->in_use =
          holder == Holder::kSomebody || (holder == Holder::kUnknown && file->is_partial &&
                                          now_ns() - file->last_used_ns < kAbandonedAfterNs);
      if (!file->is_partial) file->source = source_of(fd, file->bytes);
      close(fd);
    }
    files.push_back(std::move(*file));
  }
  std::ranges::sort(files, [](const WeightFile& a, const WeightFile& b) {
    return std::tie(a.last_used_ns, a.path) < std::tie(b.last_used_ns, b.path);
  });
  return files;
}

int64_t total_bytes(const std::vector<WeightFile>& files) {
  int64_t total = 0;
  for (const WeightFile& file : files) total += file.bytes;
  return total;
}

std::vector<WeightFile> shrink_weight_files(const std::string& folder, int64_t limit) {
  const WeightFolderLock lock(folder);
  std::vector<WeightFile> removed = remove_where(folder, [now = now_ns()](const WeightFile& file) {
    return file.is_partial && now - file.last_used_ns > kLockedAfterNs;
  });
  int64_t total = total_bytes(weight_files(folder));
  for (WeightFile& file : remove_where(folder, [&](const WeightFile& f) {
         if (f.is_partial || total <= limit) return false;
         total -= f.bytes;
         return true;
       }))
    removed.push_back(std::move(file));
  return removed;
}

std::vector<WeightFile> remove_weight_files(const std::string& folder,
                                            const std::function<bool(const WeightFile&)>& chosen) {
  const WeightFolderLock lock(folder);
  return remove_where(folder, chosen);
}

std::string source_page(std::string_view source) {
  const auto text_of = [](std::string_view s) {
    return nlohmann::json{{"source", s}}.dump(-1, ' ', false,
                                              nlohmann::json::error_handler_t::replace);
  };
  std::string text = text_of(source);
  if (text.size() >= kSourcePageBytes) text = text_of("");  // a path that no system allows
  text.resize(kSourcePageBytes, ' ');
  text.back() = '\n';
  return text;
}

}  // namespace evalrun::engine
