// Thin shell over the SQLite C API: statements that clean up after themselves, transactions that
// roll back, and error codes turned into messages a user can act on. Internal to results/.
#pragma once
#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace evalrun::results {

// Throws the error that belongs to `code` (and to the connection's last message): data_error for a
// full disk, a lock, no permission, a damaged or foreign file; InternalError for a broken
// constraint. `doing` completes "while ...". db may be null.
[[noreturn]] void throw_sqlite(sqlite3* db, int code, const std::string& path,
                               std::string_view doing);

// "process 4242 (evalrun)" for whoever holds a write lock on the file, "" when unknown
// (/proc/locks).
std::string lock_holder(const std::string& path);

class Statement {
 public:
  Statement(sqlite3* db, const std::string& path, std::string_view sql);
  ~Statement() { sqlite3_finalize(stmt_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Binds the next parameter, left to right.
  Statement& operator<<(int64_t v);
  Statement& operator<<(int v) { return *this << static_cast<int64_t>(v); }
  Statement& operator<<(bool v) { return *this << static_cast<int64_t>(v); }
  Statement& operator<<(double v);  // NaN is stored as NULL
  Statement& operator<<(const std::string& v);
  Statement& operator<<(std::nullptr_t);
  template <typename T>
  Statement& operator<<(const std::optional<T>& v) {
    return v ? *this << *v : *this << nullptr;
  }
  Statement& blob(const std::string& bytes);

  bool step();  // true while there is a row
  void run();   // steps to the end and resets, ready for the next round of parameters
  sqlite3_stmt* get() const { return stmt_; }

 private:
  void bound(int code);
  sqlite3* db_;
  const std::string& path_;
  sqlite3_stmt* stmt_ = nullptr;
  int next_ = 1;
};

// Runs a script of several statements.
void run_script(sqlite3* db, const std::string& path, const std::string& sql,
                std::string_view doing);

// BEGIN IMMEDIATE, so that a lock shows here and not at commit; rolls back unless committed.
class Transaction {
 public:
  Transaction(sqlite3* db, const std::string& path);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  sqlite3* db_;
  const std::string& path_;
  bool open_ = true;
};

}  // namespace evalrun::results
