#include "results/merge/merge_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/base/error.h"
#include "results/sqlite.h"

namespace evalrun::results {
namespace {

void remove_merge_file(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) ::unlink((path + suffix).c_str());
}

[[noreturn]] void throw_os(const std::string& path, const char* doing) {
  throw base::data_error(path, "", fmt::format("{}: {}", doing, std::strerror(errno)),
                         "check the path, the permissions of its folder and the space left");
}

void sync_path(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) throw_os(path, "cannot be opened to be synced");
  const int failed = ::fsync(fd);
  const int why = errno;
  ::close(fd);
  errno = why;
  // A folder of some file systems cannot be synced, and need not be.
  if (failed != 0 && errno != EINVAL) throw_os(path, "cannot be synced");
}

}  // namespace

MergeFile::MergeFile(const std::string& target)
    : target_(target), path_(target + ".merging"), lock_path_(target + ".merge-lock") {
  lock();
  try {
    remove_merge_file(path_);
    hold_target();
  } catch (...) {
    ::unlink(lock_path_.c_str());
    ::close(lock_);
    throw;
  }
}

// The lock ends with its process. Who held it removes the file, so that what was locked must still
// be the file of that name.
void MergeFile::lock() {
  for (;;) {
    lock_ = ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0) throw_os(target_, "cannot be written");
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      const int why = errno;
      const std::string who = lock_holder(lock_path_);
      ::close(lock_);
      lock_ = -1;
      errno = why;
      if (why != EWOULDBLOCK) throw_os(lock_path_, "cannot be locked");
      throw base::data_error(
          target_, "",
          fmt::format("another merge writes it{}", who.empty() ? "" : " (" + who + ")"),
          "wait until it has finished; nothing was changed");
    }
    struct stat ours = {}, there = {};
    if (::fstat(lock_, &ours) == 0 && ::stat(lock_path_.c_str(), &there) == 0 &&
        ours.st_ino == there.st_ino)
      return;
    ::close(lock_);
  }
}

// A log of it beside the new file would break that. SQLite ends the log where nobody else has the
// file open.
void MergeFile::hold_target() {
  if (::access(target_.c_str(), F_OK) != 0) return;
  int rc = sqlite3_open_v2(target_.c_str(), &held_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                           nullptr);
  const auto check = [&](const char* doing) {
    if (rc == SQLITE_OK) return;
    try {
      throw_sqlite(held_, rc, target_, doing);
    } catch (...) {
      sqlite3_close_v2(held_);
      held_ = nullptr;
      throw;
    }
  };
  check("opening it");
  rc = sqlite3_exec(held_, "PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE", nullptr, nullptr,
                    nullptr);
  check("making sure that nobody else writes to it");
}

MergeFile::~MergeFile() {
  sqlite3_close_v2(held_);
  remove_merge_file(path_);
  ::unlink(lock_path_.c_str());
  ::close(lock_);
}

void MergeFile::put_in_place() {
  sync_path(path_, O_RDWR);
  // Logs of a target that was deleted without them: SQLite would play them into the new file. Those
  // of an old target are gone: hold_target().
  if (held_ == nullptr) {
    if (::access(target_.c_str(), F_OK) == 0)
      throw base::data_error(target_, "", "another program has made it meanwhile",
                             "merge into another file; this one was left as it is");
    for (const char* suffix : {"-wal", "-shm", "-journal"}) ::unlink((target_ + suffix).c_str());
  }
  if (::rename(path_.c_str(), target_.c_str()) != 0) throw_os(target_, "cannot be written");
  const auto folder = std::filesystem::path(target_).parent_path().string();
  sync_path(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
}

}  // namespace evalrun::results
