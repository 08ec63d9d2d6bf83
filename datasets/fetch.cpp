// Downloading official files with libcurl: to a temporary file, checked, then renamed into place.
#include <curl/curl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "datasets/manifest.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::datasets {

namespace fs = std::filesystem;

namespace {

// A file under construction; removed again unless keep() renamed it into place.
class PartFile {
 public:
  explicit PartFile(const fs::path& target)
      : target_(target), path_(target.string() + fmt::format(".part.{}", ::getpid())) {
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0)
      throw base::data_error(path_.string(), "",
                             fmt::format("cannot write: {}", std::strerror(errno)),
                             "choose a data root you may write to");
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }

  bool write(const char* data, size_t n) {
    while (n > 0) {
      const ssize_t done = ::write(fd_, data, n);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) {
        write_errno_ = done < 0 ? errno : ENOSPC;
        return false;
      }
      data += done;
      n -= static_cast<size_t>(done);
      bytes_ += done;
    }
    return true;
  }

  void keep() {
    int reason = 0;
    if (::fsync(fd_) != 0 && errno != EINVAL) reason = errno;
    if (::close(std::exchange(fd_, -1)) != 0 && reason == 0) reason = errno;
    if (reason == 0 && ::rename(path_.c_str(), target_.c_str()) != 0) reason = errno;
    if (reason != 0)
      throw base::data_error(target_.string(), "",
                             fmt::format("cannot write: {}", std::strerror(reason)),
                             "free some space or choose another data root");
    kept_ = true;
  }

  const fs::path& path() const { return path_; }
  int64_t bytes() const { return bytes_; }
  int write_errno() const { return write_errno_; }

 private:
  fs::path target_, path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  int write_errno_ = 0;
  bool kept_ = false;
};

struct Transfer {
  PartFile* part;
  const ManifestFile* file;
  const FetchOptions* options;
  bool too_long = false;
  bool stopped = false;
};

// libcurl calls these through C: no exception may leave them.
size_t on_data(char* data, size_t size, size_t n, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = size * n;
  if (transfer.part->bytes() + static_cast<int64_t>(bytes) > transfer.file->bytes) {
    transfer.too_long = true;
    return 0;
  }
  return transfer.part->write(data, bytes) ? bytes : 0;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (!transfer.options->progress) return 0;
  try {
    transfer.stopped = !transfer.options->progress(
        {transfer.file->path, transfer.part->bytes(), transfer.file->bytes});
  } catch (...) {
    transfer.stopped = true;
  }
  return transfer.stopped ? 1 : 0;
}

std::string by_hand(const ManifestFile& file, const fs::path& target) {
  return fmt::format(
      "to do it by hand, download\n    {}\n  to\n    {}\n  ({} bytes, SHA-256 {}),\n"
      "  then run `evalrun data verify`",
      file.url, target.string(), file.bytes, file.sha256);
}

void download(const ManifestFile& file, const FetchOptions& options, const fs::path& target,
              PartFile& part) {
  static const CURLcode kGlobal = curl_global_init(CURL_GLOBAL_DEFAULT);
  EVALRUN_CHECK(kGlobal == CURLE_OK);
  const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), &curl_easy_cleanup);
  EVALRUN_CHECK(handle != nullptr);
  Transfer transfer{&part, &file, &options};
  char reason[CURL_ERROR_SIZE] = "";
  CURL* curl = handle.get();
  curl_easy_setopt(curl, CURLOPT_URL, file.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http,file");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "https,http");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_timeout_s));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout_s));
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "evalrun");
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &on_data);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  const CURLcode rc = curl_easy_perform(curl);

  if (transfer.stopped)
    throw base::Error(base::ExitCode::kInterrupted,
                      fmt::format("download of {} stopped", file.path),
                      "nothing was changed; run the same command to start again");
  if (transfer.too_long)
    throw base::data_error(file.url, "",
                           fmt::format("sends more than the {} bytes expected", file.bytes),
                           by_hand(file, target));
  if (part.write_errno() != 0)
    throw base::data_error(part.path().string(), "",
                           fmt::format("cannot write: {}", std::strerror(part.write_errno())),
                           "free some space or choose another data root");
  if (rc != CURLE_OK)
    throw base::data_error(
        file.url, "",
        fmt::format("cannot be downloaded: {}", reason[0] ? reason : curl_easy_strerror(rc)),
        by_hand(file, target));
}

}  // namespace

FetchResult fetch_file(const ManifestFile& file, const FetchOptions& options) {
  if (options.data_root.empty())
    throw base::usage_error("no data root to fetch into",
                            "give --data-root DIR or set EVALRUN_DATA");
  if (!file.fetchable())
    throw base::usage_error(fmt::format("{} cannot be fetched", file.path),
                            file.note.empty() ? "put it there by hand" : file.note);
  const fs::path target = fs::path(options.data_root) / file.path;
  const FileCheck before = verify_file(file, options.data_root);
  if (before.state == FileState::kOfficial)
    return {file, FetchOutcome::kAlreadyThere, target.string()};
  if (before.state != FileState::kMissing && !options.force)
    throw base::usage_error(fmt::format("{} is already there: {}", target.string(), before.detail),
                            "remove it, or use --force to replace it with the official file");

  PartFile part(target);
  download(file, options, target, part);
  if (part.bytes() != file.bytes)
    throw base::data_error(
        file.url, "", fmt::format("sent {} bytes where {} are expected", part.bytes(), file.bytes),
        by_hand(file, target));
  const std::string sha256 = base::sha256_file(part.path().string());
  if (sha256 != file.sha256)
    throw base::data_error(
        file.url, "",
        fmt::format("has SHA-256 {} where {} is expected; the source has changed", sha256,
                    file.sha256),
        by_hand(file, target));
  part.keep();
  return {file, FetchOutcome::kFetched, target.string()};
}

std::vector<FetchResult> fetch_dataset(const std::string& name, const FetchOptions& options) {
  const std::vector<std::string> names = fetchable_datasets();
  if (name != "all" && std::find(names.begin(), names.end(), name) == names.end()) {
    for (const ManifestFile& entry : manifest())
      if (entry.dataset == name)
        throw base::usage_error(fmt::format("data set '{}' cannot be fetched", name), entry.note);
    throw base::usage_error(fmt::format("no data set '{}' to fetch", name),
                            base::suggest(name, names));
  }
  std::vector<FetchResult> results;
  for (const ManifestFile& entry : manifest())
    if (entry.fetchable() && (name == "all" || entry.dataset == name))
      results.push_back(fetch_file(entry, options));
  return results;
}

}  // namespace evalrun::datasets
