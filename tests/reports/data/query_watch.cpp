#include "tests/reports/data/query_watch.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace evalrun::tests {
namespace {

std::vector<WatchedQuery> seen;

int on_profile(unsigned, void*, void* statement, void* nanoseconds) {
  char* sql = sqlite3_expanded_sql(static_cast<sqlite3_stmt*>(statement));
  if (sql != nullptr)
    seen.push_back({sql, 1e-9 * static_cast<double>(*static_cast<sqlite3_int64*>(nanoseconds))});
  sqlite3_free(sql);
  return 0;
}

int on_open(sqlite3* db, char**, const void*) {
  return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, on_profile, nullptr);
}

// As sqlite3_auto_extension wants it.
void (*entry())() { return reinterpret_cast<void (*)()>(on_open); }

}  // namespace

QueryWatch::QueryWatch() {
  seen.clear();
  sqlite3_auto_extension(entry());
}
QueryWatch::~QueryWatch() { sqlite3_cancel_auto_extension(entry()); }

std::vector<WatchedQuery> QueryWatch::take() { return std::exchange(seen, {}); }

std::vector<std::string> query_plan(const results::ResultStore& store, const std::string& sql) {
  std::vector<std::string> lines;
  store.query("EXPLAIN QUERY PLAN " + sql, {}, [&](const results::Row& row) {
    lines.push_back(row.text(3));
    return true;
  });
  return lines;
}

std::vector<std::string> full_scans(const std::vector<std::string>& plan) {
  // Small tables under the names our queries give them; what a query has made itself.
  constexpr std::array<std::string_view, 12> kHarmless = {
      "(",    "v_",       "CONSTANT",      "run",       "arm",  "a",
      "meta", "baseline", "sqlite_schema", "json_each", "miss", "cell"};
  std::vector<std::string> scans;
  for (const std::string& line : plan) {
    if (!line.starts_with("SCAN ")) continue;
    const std::string target = line.substr(5, line.find(' ', 5) - 5);
    if (std::none_of(kHarmless.begin(), kHarmless.end(), [&](std::string_view name) {
          return name == "(" || name == "v_" ? target.starts_with(name) : target == name;
        }))
      scans.push_back(line);
  }
  return scans;
}

}  // namespace evalrun::tests
