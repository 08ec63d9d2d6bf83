#include "runners/cluster/database_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/base/error.h"
#include "results/machines.h"
#include "results/store.h"

namespace evalrun::runners {
namespace {

namespace fs = std::filesystem;
using results::ResultStore;

base::Error copy_failed(const std::string& from, const std::string& to, const std::string& why) {
  return base::data_error(to, "", fmt::format("the copy of {} cannot be written: {}", from, why),
                          fmt::format("what is measured is safe in {}; free some space, or copy it "
                                      "by hand when the run has ended",
                                      from));
}

// A file that a renamed one replaces must be on the disk before it is.
int sync_path(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return errno;
  const int reason = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  ::close(fd);
  return reason;
}

void put_in_place(const std::string& part, const std::string& from, const std::string& to) {
  int reason = sync_path(part, O_RDONLY);
  if (reason == 0 && ::rename(part.c_str(), to.c_str()) != 0) reason = errno;
  if (reason != 0) {
    ::unlink(part.c_str());
    throw copy_failed(from, to, std::strerror(reason));
  }
  // The name, too. Not every file system can; the next copy is another chance.
  sync_path(fs::absolute(to).parent_path().string(), O_RDONLY | O_DIRECTORY);
}

// Unlike any that another machine or process could choose.
std::string part_of(const std::string& file) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}.part.{}.{}", file, host, ::getpid());
}

results::StoreContent content_of(const std::string& database) {
  return results::content_of(ResultStore(database, ResultStore::Mode::kReadOnly));
}

}  // namespace

void copy_database(const std::string& database, const std::string& copy) {
  const std::string part = part_of(copy);
  ::unlink(part.c_str());
  try {
    // A connection of its own: the writer's may be in the middle of a statement. The copy has no
    // write-ahead log beside it, so that one file is all of it.
    const ResultStore store(database, ResultStore::Mode::kReadOnly);
    store.query("VACUUM INTO ?", {part}, [](const results::Row&) { return true; });
  } catch (const base::Error& e) {
    ::unlink(part.c_str());
    throw copy_failed(database, copy, e.message());
  }
  put_in_place(part, database, copy);
}

Restored restore_database(const std::string& copy, const std::string& database) {
  std::error_code ignored;
  if (!fs::exists(copy, ignored)) return Restored::kNothing;
  const results::StoreContent there = content_of(copy);
  if (fs::exists(database, ignored)) {
    const results::StoreContent here = content_of(database);
    const bool stays = here.generations >= there.generations;
    // Whichever goes must have nothing of its own: somebody else's file may have that name.
    const results::StoreContent& kept = stays ? here : there;
    const results::StoreContent& goes = stays ? there : here;
    if (!std::includes(kept.runs.begin(), kept.runs.end(), goes.runs.begin(), goes.runs.end()))
      throw base::data_error(
          copy, "",
          fmt::format("holds other runs than {}: one would take the other's place", database),
          "name another file for the copy, or for the database");
    if (stays) return Restored::kNothing;
  }
  const std::string part = part_of(database);
  std::error_code error;
  fs::copy_file(copy, part, fs::copy_options::overwrite_existing, error);
  if (error) {
    fs::remove(part, ignored);
    throw base::data_error(database, "",
                           fmt::format("cannot be restored from {}: {}", copy, error.message()),
                           "free some space, or choose another local folder");
  }
  // They belong to the file that goes.
  fs::remove(database + "-wal", ignored);
  fs::remove(database + "-shm", ignored);
  put_in_place(part, copy, database);
  return Restored::kCopied;
}

}  // namespace evalrun::runners
