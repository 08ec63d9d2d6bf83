// What a result database holds, read with plain SQLite rather than with our own store: a reader of
// the file must see the same.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace evalrun::tests {

// Names a generation the same way in every database.
struct Cell {
  std::string arm, prompt;
  int repeat = 0, sample = 0;
  auto operator<=>(const Cell&) const = default;
};

struct StoredGeneration {
  int64_t id = 0;
  std::string started, status;
  int64_t total_ns = 0;
  std::string tokens;  // of all turns: "1,2,3;4,5"
  std::vector<std::string>
      steps;  // "rows/drafted/accepted/emitted" of every step, by turn and index
  // Measured values; `id`, `started` and `total_ns` differ between two measurements.
  bool same_output(const StoredGeneration& o) const {
    return status == o.status && tokens == o.tokens && steps == o.steps;
  }
  bool operator==(const StoredGeneration&) const = default;
};
using StoredRun = std::map<Cell, StoredGeneration>;

// Every generation in the file. Throws when it cannot be opened or read.
StoredRun read_stored(const std::string& db);

// Result of PRAGMA integrity_check and foreign_key_check: "ok" or what is wrong.
std::string check_integrity(const std::string& db);

// Statements on the file, behind the program's back.
void change_stored(const std::string& db, const std::string& sql);

// First value of a query, as text.
std::string query_value(const std::string& db, const std::string& sql);

// Number of generations; 0 while the file or its tables are not there yet.
int count_stored(const std::string& db);

}  // namespace evalrun::tests
