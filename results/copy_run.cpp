#include "results/copy_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "results/attached_store.h"
#include "results/machines.h"
#include "results/queries.h"
#include "results/read_rows.h"
#include "results/store_transaction.h"

namespace evalrun::results {
namespace {

// Column by column, by name: a migrated file has them in another order, and an older source lacks
// some, which have defaults. `changed` gives the value
// of columns that are not taken as they are; `which` selects rows of the source, named s.
void copy_rows(ResultStore& target, const std::string& table, const std::string& which,
               const std::map<std::string, std::string>& changed = {},
               const std::string& insert = "INSERT") {
  std::vector<std::string> columns, values;
  const char* common =
      "SELECT name FROM pragma_table_info(?1, 'main') WHERE name IN "
      "(SELECT name FROM pragma_table_info(?1, 'source'))";
  target.query(common, {table}, [&](const Row& row) {
    columns.push_back(row.text(0));
    const auto other = changed.find(columns.back());
    values.push_back(other != changed.end() ? other->second : "s." + columns.back());
    return true;
  });
  target.execute(fmt::format("{} INTO main.{} ({}) SELECT {} FROM source.{} s WHERE {}", insert,
                             table, fmt::join(columns, ", "), fmt::join(values, ", "), table,
                             which));
}

// What to add to the ids of a table's rows.
int64_t shift(const ResultStore& target, const std::string& table, const std::string& which) {
  const auto first =
      one<int64_t>(target, fmt::format("SELECT min(s.id) FROM source.{} s WHERE {}", table, which));
  const auto last = one<int64_t>(target, fmt::format("SELECT max(id) FROM main.{}", table));
  return first ? last.value_or(0) + 1 - *first : 0;
}

// Both runs hold the same generations, told by when and how long each was measured.
bool same_measurements(const ResultStore& target, int64_t there, int64_t here) {
  const auto cells = [](const char* database, int64_t run_id) {
    return fmt::format(
        "SELECT a.key, p.key, g.repeat, g.sample, g.started, g.total_ns, g.tokens_hash, "
        "g.steps_hash, g.status, g.fault FROM {0}.generation g JOIN {0}.arm a ON a.id = g.arm_id "
        "JOIN {0}.prompt p ON p.id = g.prompt_id WHERE g.run_id = {1}",
        database, run_id);
  };
  const std::string ours = cells("main", there), theirs = cells("source", here);
  for (const auto& [a, b] : {std::pair(ours, theirs), std::pair(theirs, ours)})
    if (one<int64_t>(target, fmt::format("SELECT count(*) FROM ({} EXCEPT {})", a, b)) != 0)
      return false;
  return true;
}

// Inside a transaction of the target, with the source attached.
int64_t copy_attached_run(const ResultStore& source, int64_t run_id, ResultStore& target) {
  if (const auto known = one<int64_t>(target,
                                      "SELECT id FROM main.run WHERE key = "
                                      "(SELECT key FROM source.run WHERE id = ?)",
                                      {run_id})) {
    if (same_measurements(target, *known, run_id)) return *known;
    throw base::data_error(
        target.path(), fmt::format("run {}", *known),
        fmt::format("has the key of run {} of {}, but not its measurements", run_id, source.path()),
        "the same suite, build and settings were measured twice: take another database with --db, "
        "or leave that one where it is and name it as FILE:NAME");
  }
  const std::string of_run = fmt::format("s.run_id = {}", run_id);
  const std::string of_generation = fmt::format(
      "s.generation_id IN (SELECT id FROM source.generation WHERE run_id = {})", run_id);
  const std::string of_turn = fmt::format(
      "s.turn_id IN (SELECT t.id FROM source.turn t JOIN source.generation g ON g.id = "
      "t.generation_id WHERE g.run_id = {})",
      run_id);
  const auto plus = [](const char* column, int64_t n) {
    return fmt::format("s.{} + {}", column, n);
  };
  const int64_t new_id = one<int64_t>(target, "SELECT max(id) FROM main.run").value_or(0) + 1;
  const std::string run = std::to_string(new_id);
  const int64_t arm = shift(target, "arm", of_run), prompt = shift(target, "prompt", of_run);
  const int64_t generation = shift(target, "generation", of_run);
  const int64_t turn = shift(target, "turn", of_generation);
  const bool machines = has_machines(source);
  const int64_t machine = machines ? shift(target, "machine", of_run) : 0;
  copy_rows(target, "run", fmt::format("s.id = {}", run_id), {{"id", run}});
  copy_rows(target, "environment", of_run, {{"run_id", run}});
  if (machines) {
    copy_rows(target, "plan", of_run, {{"run_id", run}});
    copy_rows(target, "shard", of_run, {{"run_id", run}});
    copy_rows(target, "machine", of_run, {{"id", plus("id", machine)}, {"run_id", run}});
    copy_rows(
        target, "machine_fact",
        fmt::format("s.machine_id IN (SELECT id FROM source.machine WHERE run_id = {})", run_id),
        {{"machine_id", plus("machine_id", machine)}});
  }
  copy_rows(target, "arm", of_run, {{"id", plus("id", arm)}, {"run_id", run}});
  copy_rows(target, "prompt", of_run, {{"id", plus("id", prompt)}, {"run_id", run}});
  if (machines)
    copy_rows(
        target, "shard_prompt",
        fmt::format("s.prompt_id IN (SELECT id FROM source.prompt WHERE run_id = {})", run_id),
        {{"prompt_id", plus("prompt_id", prompt)}});
  copy_rows(
      target, "rendered",
      fmt::format("s.hash IN (SELECT rendered_hash FROM source.prompt WHERE run_id = {})", run_id),
      {}, "INSERT OR IGNORE");
  copy_rows(target, "generation", of_run,
            {{"id", plus("id", generation)},
             {"run_id", run},
             {"arm_id", plus("arm_id", arm)},
             {"prompt_id", plus("prompt_id", prompt)},
             {"machine_id", plus("machine_id", machine)}});
  copy_rows(target, "turn", of_generation,
            {{"id", plus("id", turn)}, {"generation_id", plus("generation_id", generation)}});
  copy_rows(target, "step", of_turn, {{"turn_id", plus("turn_id", turn)}});
  copy_rows(target, "node", of_turn, {{"turn_id", plus("turn_id", turn)}});
  copy_rows(target, "divergence", of_turn, {{"turn_id", plus("turn_id", turn)}});
  if (has_batches(source))
    for (const char* table : {"batch_turn", "batch_step"})
      copy_rows(target, table, of_turn, {{"turn_id", plus("turn_id", turn)}});
  if (has_endpoints(source))
    copy_rows(target, "endpoint_turn", of_turn, {{"turn_id", plus("turn_id", turn)}});
  // Older files have none.
  target.execute(
      "UPDATE main.generation SET tally = generation_tally(id) WHERE run_id = ? AND tally IS NULL",
      {new_id});
  copy_rows(target, "clock", of_generation, {{"generation_id", plus("generation_id", generation)}});
  copy_rows(target, "gpu", of_generation, {{"generation_id", plus("generation_id", generation)}});
  copy_rows(target, "score", of_generation, {{"generation_id", plus("generation_id", generation)}});
  // They hold for arms of any run: those the target has stay.
  copy_rows(target, "certificate", "true", {}, "INSERT OR IGNORE");
  return new_id;
}

void remove_database(const std::string& path) {
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm", "-journal"})
    std::filesystem::remove(path + suffix, ignored);
}

}  // namespace

int64_t copy_run(const ResultStore& source, int64_t run_id, ResultStore& target) {
  const AttachedStore attached(target, source.path(), "source");
  StoreTransaction whole(target);
  const int64_t copied = copy_attached_run(source, run_id, target);
  whole.commit();
  return copied;
}

int64_t copy_baseline(const ResultStore& source, const std::string& name, ResultStore& target,
                      const std::string& as, bool replace) {
  const auto run_id = one<int64_t>(source, "SELECT run_id FROM baseline WHERE name = ?", {name});
  EVALRUN_CHECK(run_id.has_value(), "{} has no baseline '{}'", source.path(), name);
  const AttachedStore attached(target, source.path(), "source");
  StoreTransaction whole(target);
  const auto taken = one<int64_t>(target, "SELECT run_id FROM main.baseline WHERE name = ?", {as});
  if (taken && !replace)
    throw base::usage_error(
        fmt::format("{} has a baseline '{}' already: run {}", target.path(), as, *taken),
        "--as NAME gives this one another name, --force takes the name from that run");
  const int64_t copied = copy_attached_run(source, *run_id, target);
  target.execute(
      "INSERT OR REPLACE INTO main.baseline (name, run_id, note, saved) "
      "SELECT ?, ?, note, saved FROM source.baseline WHERE name = ?",
      {as, copied, name});
  whole.commit();
  return copied;
}

void export_baseline(const ResultStore& source, const std::string& name, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored))
    throw base::data_error(path, "", "exists already", "remove it first, or choose another name");
  const std::string unfinished = path + ".tmp";
  remove_database(unfinished);
  try {
    ResultStore target(unfinished);
    copy_baseline(source, name, target, name, false);
    // Takes the log into the file, which can then be read where nothing can be written.
    target.query("PRAGMA journal_mode = DELETE", {}, [](const Row& row) {
      EVALRUN_CHECK(row.text(0) == "delete", "the log stays: {}", row.text(0));
      return false;
    });
  } catch (...) {
    remove_database(unfinished);
    throw;
  }
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (!error) return;
  remove_database(unfinished);
  throw base::data_error(path, "", fmt::format("cannot be written: {}", error.message()));
}

}  // namespace evalrun::results
