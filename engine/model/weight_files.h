// The folder of converted weights, $EVALRUN_HOME/weights: what lies there, how much may, and what
// is removed.
//
// Every process that reads or writes a file, or has a model in memory that came from it, holds a
// shared lock on it (flock). Only a file that nobody holds is removed. Files are put in place and
// removed under an exclusive lock on the folder. When a file was last used is its time of change,
// which every reader sets, as ccache does.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evalrun::engine {

// The last bytes of every file say where its model came from: JSON, padded with blanks.
inline constexpr size_t kSourcePageBytes = 4096;

struct WeightFile {
  std::string path;
  std::string source;         // path the model was loaded from; "" when the file does not say
  std::string model, format;  // SHA-256 of the model; name of the weight format
  int layout = 0;             // version of the file's layout
  int64_t bytes = 0;
  int64_t last_used_ns = 0;  // since 1970
  bool is_partial = false;   // being written, or left by a process that was killed
  bool in_use = false;       // another process, or another model of this one, holds it
};

// An open file with a shared lock on it. No lock where the file system knows none.
class WeightFileHold {
 public:
  WeightFileHold() = default;
  explicit WeightFileHold(int fd);  // takes the descriptor over; -1 = nothing
  WeightFileHold(WeightFileHold&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  WeightFileHold& operator=(WeightFileHold&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~WeightFileHold();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// An exclusive lock on the folder while it lives. After two seconds it goes on without one: a
// process that hangs must not stop the others.
class WeightFolderLock {
 public:
  explicit WeightFolderLock(const std::string& folder);
  WeightFolderLock(const WeightFolderLock&) = delete;
  WeightFolderLock& operator=(const WeightFolderLock&) = delete;
  ~WeightFolderLock();

 private:
  int fd_ = -1;
};

// "" when neither EVALRUN_HOME nor HOME is set.
std::string weight_folder();

// The value of EVALRUN_CACHE_MAX in bytes, e.g. 20GB, 1.5TiB or 0; nullopt when it is not set.
// Throws usage_error when it is no size.
std::optional<int64_t> weight_limit_variable();
// `chosen`, else the larger of 10 GB and 10 % of the disk that would be free without these files.
int64_t weight_limit(const std::string& folder, std::optional<int64_t> chosen);

// The stored files, least recently used first.
std::vector<WeightFile> weight_files(const std::string& folder);
int64_t total_bytes(const std::vector<WeightFile>& files);

// Removes what killed processes left behind and then, least recently used first, files that nobody
// holds until all take no more than `limit` bytes. Returns the files that it removed.
std::vector<WeightFile> shrink_weight_files(const std::string& folder, int64_t limit);
// Removes the chosen files, but for those somebody holds. Returns the files that it removed.
std::vector<WeightFile> remove_weight_files(const std::string& folder,
                                            const std::function<bool(const WeightFile&)>& chosen);

// The last page of a file for a model that was loaded from `source`.
std::string source_page(std::string_view source);

}  // namespace evalrun::engine
