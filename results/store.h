// Append-only SQLite store (WAL): one transaction per generation, raw values only. Every published
// metric is a view in the schema (results/schema.sql), documented in docs/schema.md.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "results/records.h"

struct sqlite3;
struct sqlite3_stmt;

namespace evalrun::results {

inline constexpr int kSchemaVersion = 13;
// Older versions are read as they are, if nothing is written: what came after it are columns that
// may be absent.
inline constexpr int kOldestReadable = 8;

// One row of a query, read while stepping. Columns are 0-based.
class Row {
 public:
  explicit Row(sqlite3_stmt* s) : stmt_(s) {}
  bool is_null(int column) const;
  int64_t integer(int column) const;
  double number(int column) const;
  std::string text(int column) const;
  std::string blob(int column) const;
  std::string_view view(int column) const;  // bytes of a text or blob, until the next row
  int columns() const;
  std::string name(int column) const;

 private:
  sqlite3_stmt* stmt_;
};

using Value = std::variant<std::nullptr_t, int64_t, double, std::string>;

class ResultStore {
 public:
  // kReadOnly changes nothing, and reads files from kOldestReadable on.
  enum class Mode { kReadWrite, kReadOnly };
  // Opens or creates. Throws data_error: not a database, a newer schema (names both versions),
  // locked by another process (who, if known), no space, no permission. Older schemas are migrated
  // in one transaction after a copy to FILE.bak-v<N>.
  explicit ResultStore(const std::string& path, Mode mode = Mode::kReadWrite);
  ~ResultStore();
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  const std::string& path() const { return path_; }

  // Each returns the row id; equal keys give the existing row (its settings are not changed).
  int64_t add_run(const RunRecord& run);
  // A fact about the machine learnt after add_run. A fact that is stored already stays.
  void add_environment(int64_t run_id, const std::string& name, const std::string& value);
  // A process on a machine. Equal keys give the existing row, and facts that are stored stay.
  int64_t add_machine(int64_t run_id, const MachineRecord& machine);
  void add_machine_fact(int64_t machine_id, const std::string& name, const std::string& value);
  int64_t add_arm(int64_t run_id, const ArmRecord& arm);
  int64_t add_prompt(int64_t run_id, const PromptRecord& prompt);
  // What the run measures in the end; one that is stored stays.
  void add_plan(int64_t run_id, const PlanRecord& plan);
  // A part of the plan that is measured here. numbers: (row of the prompt, number of its shard), of
  // all prompts of the plan.
  void add_shard(int64_t run_id, const Shard& shard,
                 const std::vector<std::pair<int64_t, int>>& numbers);
  // Highest of the stored and the given peak, so that a resumed run keeps the larger one.
  void update_arm_bytes(int64_t arm_id, const ArmRecord& arm);

  // One transaction: generation, turns, steps, those of its batch, what a server counted, nodes,
  // divergences, tokens, clock, scores, how much its tokens repeat themselves
  // (results/repetition.h), and its tally. Returns its id. A second generation with the same (arm,
  // prompt, repeat, sample) is refused with an InternalError: resume never measures twice. On a
  // full disk nothing of it is stored and earlier records stay.
  int64_t add_generation(int64_t run_id, int64_t arm_id, int64_t prompt_id,
                         const GenerationRecord& g, const std::vector<ScoreRecord>& scores);
  // A score taken later; one of the same evaluator and convention is replaced.
  void put_score(int64_t generation_id, const ScoreRecord& score);
  // Many of them (generation id, score) in one transaction.
  void put_scores(const std::vector<std::pair<int64_t, ScoreRecord>>& scores);
  // Also true for a failed one: failures are results, and a resumed run does not repeat them.
  bool has_generation(int64_t arm_id, int64_t prompt_id, int repeat, int sample) const;
  // A number for what the arm decodes together next (GenerationRecord::batch_call): one above those
  // that are stored, 1 and more.
  int64_t next_batch_call(int64_t arm_id) const;

  void finish_run(int64_t run_id);  // all cells measured
  // "" or "latest" = newest run; one labelled as `evalrun check` labels its own ("check", "check
  // with ...") only where there is no other. Else by number, key, label (the newest of that label)
  // or name of a baseline, in this order.
  std::optional<int64_t> find_run(const std::string& id_key_or_label) const;

  // Runs named by baseline; `note` free text.
  void save_baseline(const std::string& name, int64_t run_id, const std::string& note);
  bool remove_baseline(const std::string& name);

  // Steps of one turn, in order: the first `limit` of them, or all. Reads these rows only.
  std::vector<StepRecord> steps(int64_t turn_id, std::optional<int64_t> limit = std::nullopt) const;

  // Parameterised query: `f` sees each row, return false to stop. SQL has the function
  // generation_tally(id): what the column `tally` of a generation should be (results/tally.h), from
  // its rows.
  void query(const std::string& sql, const std::vector<Value>& parameters,
             const std::function<bool(const Row&)>& f) const;
  void execute(const std::string& sql, const std::vector<Value>& parameters = {});

 private:
  struct Impl;
  std::string path_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace evalrun::results
