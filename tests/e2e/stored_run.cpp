#include "tests/e2e/stored_run.h"

#include <sqlite3.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "engine/base/error.h"

namespace evalrun::tests {
namespace {

class Database {
 public:
  explicit Database(const std::string& path) {
    // Read-write: a WAL left behind by a killed process is recovered by the first who opens it.
    if (sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK)
      fail("open " + path);
    sqlite3_busy_timeout(db_, 10000);
  }
  ~Database() { sqlite3_close(db_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void execute(const std::string& sql) const {
    if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail(sql);
  }
  void query(const std::string& sql, const std::function<void(sqlite3_stmt*)>& row) const {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) fail(sql);
    int code = 0;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) row(statement);
    sqlite3_finalize(statement);
    if (code != SQLITE_DONE) fail(sql);
  }

 private:
  [[noreturn]] void fail(const std::string& doing) const {
    throw std::runtime_error(fmt::format("{}: {}", doing, sqlite3_errmsg(db_)));
  }
  sqlite3* db_ = nullptr;
};

std::string text(sqlite3_stmt* row, int column) {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
  return bytes == nullptr ? "" : bytes;
}

std::string ids(sqlite3_stmt* row, int column) {
  const auto n = static_cast<size_t>(sqlite3_column_bytes(row, column)) / sizeof(int32_t);
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(row, column));
  std::string out;
  for (size_t i = 0; i < n; ++i) {
    int32_t id = 0;
    std::memcpy(&id, bytes + i * sizeof id, sizeof id);
    out += (i == 0 ? "" : ",") + std::to_string(id);
  }
  return out;
}

}  // namespace

StoredRun read_stored(const std::string& path) {
  const Database db(path);
  db.query("BEGIN", {});  // one snapshot for all queries: somebody may be writing
  StoredRun run;
  std::map<int64_t, StoredGeneration*> by_id;
  // The A/A arm differs from the baseline in its role alone, an arm of a batch in its size.
  db.query(
      "SELECT g.id, a.role || ' ' || a.method || CASE WHEN a.batch > 1 THEN ', batch ' || a.batch "
      "ELSE '' END, p.task || '/' || p.name, g.repeat, g.sample, "
      "g.started, g.status, g.total_ns FROM generation g JOIN arm a ON a.id = g.arm_id "
      "JOIN prompt p ON p.id = g.prompt_id ORDER BY g.id",
      [&](sqlite3_stmt* s) {
        StoredGeneration g;
        g.id = sqlite3_column_int64(s, 0);
        g.started = text(s, 5);
        g.status = text(s, 6);
        g.total_ns = sqlite3_column_int64(s, 7);
        const Cell cell{text(s, 1), text(s, 2), sqlite3_column_int(s, 3), sqlite3_column_int(s, 4)};
        const auto [at, is_new] = run.emplace(cell, std::move(g));
        if (!is_new) throw std::runtime_error("the same cell is stored twice: " + cell.prompt);
        by_id[at->second.id] = &at->second;
      });
  db.query(
      "SELECT generation_id, tokens FROM turn ORDER BY generation_id, idx",
      [&](sqlite3_stmt* s) { by_id.at(sqlite3_column_int64(s, 0))->tokens += ids(s, 1) + ";"; });
  db.query(
      "SELECT t.generation_id, s.rows, s.drafted, s.accepted, s.emitted FROM step s "
      "JOIN turn t ON t.id = s.turn_id ORDER BY t.generation_id, t.idx, s.idx",
      [&](sqlite3_stmt* s) {
        by_id.at(sqlite3_column_int64(s, 0))
            ->steps.push_back(fmt::format("{}/{}/{}/{}", sqlite3_column_int(s, 1),
                                          sqlite3_column_int(s, 2), sqlite3_column_int(s, 3),
                                          sqlite3_column_int(s, 4)));
      });
  db.query("COMMIT", {});
  return run;
}

std::string check_integrity(const std::string& path) {
  const Database db(path);
  std::string found;
  db.query("PRAGMA integrity_check", [&](sqlite3_stmt* s) { found += text(s, 0); });
  db.query("PRAGMA foreign_key_check",
           [&](sqlite3_stmt* s) { found += " orphan in " + text(s, 0); });
  return found;
}

void change_stored(const std::string& path, const std::string& sql) { Database(path).execute(sql); }

std::string query_value(const std::string& path, const std::string& sql) {
  const Database db(path);
  std::string value;
  db.query(sql, [&](sqlite3_stmt* s) { value = text(s, 0); });
  return value;
}

int count_stored(const std::string& path) {
  if (!std::filesystem::exists(path)) return 0;
  const Database db(path);
  int n = 0;
  db.query("SELECT count(*) FROM sqlite_schema WHERE name = 'generation'",
           [&](sqlite3_stmt* s) { n = sqlite3_column_int(s, 0); });
  if (n > 0)
    db.query("SELECT count(*) FROM generation",
             [&](sqlite3_stmt* s) { n = sqlite3_column_int(s, 0); });
  return n;
}

}  // namespace evalrun::tests
