// Rows of runs brought together in one file. Internal to results/merge/.
#pragma once
#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "results/merge/merge_outcome.h"
#include "results/merge/merge_sources.h"
#include "results/sqlite.h"

namespace evalrun::results {

// Tables of rows of a turn.
inline constexpr const char* kOfTurn[] = {"step",       "node",       "divergence",
                                          "batch_turn", "batch_step", "endpoint_turn"};
// The arm, machine and prompt of a row of the source under the numbers of the target.
inline constexpr const char* kMapped =
    "JOIN temp.map_arm a ON a.old = s.arm_id JOIN temp.map_prompt p ON p.old = s.prompt_id "
    "LEFT JOIN temp.map_machine m ON m.old = s.machine_id";

inline std::string text_at(const Statement& s, int column) {
  const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(s.get(), column));
  return p == nullptr ? ""
                      : std::string(p, static_cast<size_t>(sqlite3_column_bytes(s.get(), column)));
}

// Writes without a journal: a file that fails half-way is of no use. Rows go from file to file
// inside SQLite, table by table.
class MergeTarget {
 public:
  // A fresh file of this schema version.
  explicit MergeTarget(const std::string& path);
  ~MergeTarget();
  MergeTarget(const MergeTarget&) = delete;
  MergeTarget& operator=(const MergeTarget&) = delete;

  // Its run, of which the first one makes the target's. Counts copies and what was measured twice.
  void add(const MergeSource& source, MergeOutcome& outcome);
  // After the last one: environment, indexes, gaps, whether the run is finished.
  void finish(const std::vector<MergeSource>& sources, MergeOutcome& outcome);
  void close();

 private:
  void execute(const std::string& sql);
  int64_t number(const std::string& sql);
  // "(column, ...) SELECT value, ..." of all columns of a table, named s in the source; `changed`
  // gives values.
  std::string columns_of(const char* table,
                         const std::vector<std::pair<std::string, std::string>>& changed);
  void add_run_row(const MergeSource& source);
  void add_machines();
  void add_arms(const MergeSource& source);
  void merge_arm(int64_t old_id, int64_t new_id);
  void add_prompts();
  void find_doubles(MergeOutcome& outcome);
  void refuse_other_tokens();
  void remove_beaten();
  void add_generations(bool only_run);
  void add_certificates();
  void settle_environment();
  void find_gaps(MergeOutcome& outcome);
  void find_missing_shards(MergeOutcome& outcome);

  std::string path_;
  std::string doing_;  // the files that it works on, for errors
  sqlite3* db_ = nullptr;
  std::vector<std::string> indexes_;  // dropped ones
  int64_t source_run_ = 0;
  int64_t shift_ = 0;  // added to the numbers of generations of this source
};

}  // namespace evalrun::results
