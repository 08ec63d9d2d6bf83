#include "results/sqlite.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::results {

// Opening and closing the file to ask fcntl() would drop our own SQLite's locks on it (POSIX), so
// this goes through /proc/locks.
std::string lock_holder(const std::string& path) {
  struct stat info;
  // The write-ahead log's locks live on its shared-memory file.
  for (const std::string& file : {path, path + "-shm"}) {
    if (::stat(file.c_str(), &info) != 0) continue;
    const std::string inode =
        fmt::format("{:02x}:{:02x}:{}", major(info.st_dev), minor(info.st_dev), info.st_ino);
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
      std::istringstream fields(line);
      std::string number, kind, advisory, access, place;
      int64_t pid = 0;
      if (!(fields >> number >> kind >> advisory >> access >> pid >> place)) continue;
      if (access != "WRITE" || place != inode || pid == ::getpid() || pid <= 0) continue;
      std::ifstream comm(fmt::format("/proc/{}/comm", pid));
      std::string name;
      std::getline(comm, name);
      return name.empty() ? fmt::format("process {}", pid)
                          : fmt::format("process {} ({})", pid, name);
    }
  }
  return "";
}

void throw_sqlite(sqlite3* db, int code, const std::string& path, std::string_view doing) {
  const std::string detail = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  const int os_error = db != nullptr ? sqlite3_system_errno(db) : 0;
  const bool no_space =
      (code & 0xff) == SQLITE_FULL ||
      ((code & 0xff) == SQLITE_IOERR && (os_error == ENOSPC || os_error == EDQUOT));
  if (no_space)
    throw base::data_error(path, "", fmt::format("no space left while {}", doing),
                           "nothing stored earlier is lost; free some space (or move the file with "
                           "its -wal beside it) and repeat the same command: it resumes");
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: {
      const std::string who = lock_holder(path);
      throw base::data_error(
          path, "",
          fmt::format("locked by {} while {}", who.empty() ? "another process" : who, doing),
          "wait until it has finished, or choose another file with --db");
    }
    case SQLITE_NOTADB:
      throw base::data_error(path, "", "is not an SQLite database",
                             "choose another file with --db; this one is left as it is");
    case SQLITE_CORRUPT:
      throw base::data_error(path, "", fmt::format("is damaged ({}) while {}", detail, doing),
                             "keep a copy; `sqlite3 FILE .recover` reads what can be read");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      throw base::data_error(
          path, "", fmt::format("cannot be written while {}: {}", doing, detail),
          "check the permissions of the file and of its folder, or choose another "
          "file with --db");
    case SQLITE_CANTOPEN:
      throw base::data_error(
          path, "",
          fmt::format("cannot be opened: {}", os_error != 0 ? std::strerror(os_error) : detail),
          "check the path and the permissions of its folder");
    case SQLITE_IOERR:  // a file size limit among others; SQLite does not tell which
      throw base::data_error(path, "", fmt::format("{} while {}", detail, doing),
                             "check the file system (space, quota, limits); nothing stored earlier "
                             "is lost, and the same command resumes");
    case SQLITE_CONSTRAINT:
      throw base::InternalError(
          fmt::format("internal error: {}: {} while {}", path, detail, doing));
    case SQLITE_ERROR:
      throw base::usage_error(fmt::format("{}: SQL error while {}: {}", path, doing, detail),
                              "docs/schema.md lists tables and views");
    default:
      throw base::data_error(path, "", fmt::format("{} while {} (SQLite {})", detail, doing, code));
  }
}

Statement::Statement(sqlite3* db, const std::string& path, std::string_view sql)
    : db_(db), path_(path) {
  const int rc = sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &stmt_, nullptr);
  if (rc != SQLITE_OK)
    throw_sqlite(db, rc, path, fmt::format("preparing '{}'", sql.substr(0, 120)));
}

void Statement::bound(int code) {
  if (code != SQLITE_OK) throw_sqlite(db_, code, path_, "binding a parameter");
}
Statement& Statement::operator<<(int64_t v) {
  bound(sqlite3_bind_int64(stmt_, next_++, v));
  return *this;
}
Statement& Statement::operator<<(double v) {
  bound(std::isnan(v) ? sqlite3_bind_null(stmt_, next_) : sqlite3_bind_double(stmt_, next_, v));
  ++next_;
  return *this;
}
Statement& Statement::operator<<(const std::string& v) {
  bound(sqlite3_bind_text64(stmt_, next_++, v.data(), v.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}
Statement& Statement::operator<<(std::nullptr_t) {
  bound(sqlite3_bind_null(stmt_, next_++));
  return *this;
}
Statement& Statement::blob(const std::string& bytes) {
  bound(sqlite3_bind_blob64(stmt_, next_++, bytes.data(), bytes.size(), SQLITE_TRANSIENT));
  return *this;
}

bool Statement::step() {
  const int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) return true;
  if (rc != SQLITE_DONE) {
    const int extended = sqlite3_extended_errcode(db_);
    throw_sqlite(db_, (extended & 0xff) == (rc & 0xff) ? extended : rc, path_,
                 "running a statement");
  }
  return false;
}

void Statement::run() {
  while (step()) {
  }
  sqlite3_reset(stmt_);
  next_ = 1;
}

void run_script(sqlite3* db, const std::string& path, const std::string& sql,
                std::string_view doing) {
  const int rc = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) throw_sqlite(db, rc, path, doing);
}

Transaction::Transaction(sqlite3* db, const std::string& path) : db_(db), path_(path) {
  run_script(db_, path_, "BEGIN IMMEDIATE", "beginning to write");
}
Transaction::~Transaction() {
  // After some errors (disk full among them) SQLite has rolled back by itself.
  if (open_ && sqlite3_get_autocommit(db_) == 0)
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
}
void Transaction::commit() {
  run_script(db_, path_, "COMMIT", "storing results");
  open_ = false;
}

}  // namespace evalrun::results
