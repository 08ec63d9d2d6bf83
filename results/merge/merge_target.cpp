#include "results/merge/merge_target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "results/store.h"

namespace evalrun::results {
namespace {

constexpr int64_t kMergedRun = 1;  // its number in the target

constexpr const char* kOfGeneration[] = {"clock", "gpu", "score"};

// A path as SQLite's URIs have it.
std::string uri_of(const std::string& path, const char* how) {
  std::string uri = "file:";
  for (const char c : path)
    uri += c == '%' || c == '?' || c == '#' || c == '\''
               ? fmt::format("%{:02X}", static_cast<unsigned char>(c))
               : std::string(1, c);
  return uri + "?" + how;
}

// What two arms of one plan may differ in: "avx2" and "avx512" are "avx2+avx512".
std::string joined_isa(const std::string& a, const std::string& b) {
  std::set<std::string> names;
  for (const std::string& text : {a, b})
    for (const std::string& name : base::split(text, '+')) names.insert(name);
  return fmt::format("{}", fmt::join(names, "+"));
}
base::Error more_than_planned(const MergeSource& source, const char* what) {
  return base::data_error(
      source.path, fmt::format("run {}", source.run.id),
      fmt::format("has more {}s than its plan, beside those of the others", what),
      "its rows were changed: measure that shard again");
}
std::string joined_device(const std::string& a, const std::string& b) {
  return a == b ? a : a.substr(0, a.find(':'));
}

}  // namespace

MergeTarget::MergeTarget(const std::string& path) : path_(path), doing_(path) {
  { const ResultStore made(path); }
  int rc = sqlite3_open_v2(path.c_str(), &db_,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  if (rc != SQLITE_OK) throw_sqlite(db_, rc, path_, "opening it");
  // 64 MB of pages, however large the runs are. Sorting goes through files. Without "main" the
  // sources would be locked exclusively too, and a file that is only read cannot be.
  execute(
      "PRAGMA journal_mode = DELETE; PRAGMA main.locking_mode = EXCLUSIVE;"
      "PRAGMA journal_mode = OFF;"
      "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; PRAGMA cache_size = -65536;"
      "PRAGMA temp_store = FILE;");
  Statement s(db_, doing_,
              "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL AND "
              "tbl_name = 'generation'");
  std::string drop;
  while (s.step()) {
    drop += fmt::format("DROP INDEX {};", text_at(s, 0));
    indexes_.push_back(text_at(s, 1));
  }
  sqlite3_reset(s.get());
  execute(drop);
}

MergeTarget::~MergeTarget() { sqlite3_close_v2(db_); }

void MergeTarget::execute(const std::string& sql) { run_script(db_, doing_, sql, "merging"); }

int64_t MergeTarget::number(const std::string& sql) {
  Statement s(db_, doing_, sql);
  return s.step() ? sqlite3_column_int64(s.get(), 0) : 0;
}

std::string MergeTarget::columns_of(
    const char* table, const std::vector<std::pair<std::string, std::string>>& changed) {
  std::vector<std::string> columns, values;
  Statement s(db_, doing_, "SELECT name FROM pragma_table_info(?1, 'main')");
  s << std::string(table);
  while (s.step()) {
    columns.push_back(text_at(s, 0));
    const auto other = std::find_if(changed.begin(), changed.end(),
                                    [&](const auto& c) { return c.first == columns.back(); });
    values.push_back(other != changed.end() ? other->second : "s." + columns.back());
  }
  return fmt::format("({}) SELECT {}", fmt::join(columns, ", "), fmt::join(values, ", "));
}

void MergeTarget::add(const MergeSource& source, MergeOutcome& outcome) {
  doing_ = fmt::format("{} into {}", source.path, path_);
  source_run_ = source.run.id;
  int rc = SQLITE_OK;
  // A file in a folder that cannot be written is read as it is, where it has no log.
  for (const char* how : {"mode=ro", "immutable=1"}) {
    Statement s(db_, doing_, "ATTACH DATABASE ? AS source");
    s << uri_of(source.path, how);
    rc = sqlite3_step(s.get());
    if (rc == SQLITE_DONE)
      rc = sqlite3_exec(db_, "SELECT 1 FROM source.sqlite_schema", nullptr, nullptr, nullptr);
    if (rc == SQLITE_OK) break;
    std::error_code ignored;
    const auto log = std::filesystem::file_size(source.path + "-wal", ignored);
    const bool has_log = !ignored && log > 0;
    if (*how == 'i' || has_log ||
        ((rc & 0xff) != SQLITE_CANTOPEN && (rc & 0xff) != SQLITE_READONLY))
      throw_sqlite(db_, rc, source.path, "reading it");
    sqlite3_reset(s.get());
    sqlite3_exec(db_, "DETACH DATABASE source", nullptr, nullptr, nullptr);
  }
  // One transaction: one state of a file that is still written to.
  execute("BEGIN");
  add_run_row(source);
  add_machines();
  add_arms(source);
  add_prompts();
  for (const auto& [table, planned] :
       {std::pair("arm", source.plan.arms), std::pair("prompt", source.plan.prompts)})
    if (number(fmt::format("SELECT count(*) FROM main.{}", table)) > planned)
      throw more_than_planned(source, table);
  find_doubles(outcome);
  remove_beaten();
  // Asked now: the process that writes the file may have begun another run.
  add_generations(number("SELECT count(*) FROM source.run") == 1);
  add_certificates();
  execute("COMMIT");
  for (const char* table : {"map_machine", "map_arm", "map_prompt", "double"})
    execute(fmt::format("DROP TABLE temp.{}", table));
  execute("DETACH DATABASE source");
  doing_ = path_;
}

void MergeTarget::add_run_row(const MergeSource& source) {
  if (number("SELECT count(*) FROM main.run") == 0)
    execute(
        fmt::format("INSERT INTO main.run {} FROM source.run s WHERE s.id = {}",
                    columns_of("run", {{"id", std::to_string(kMergedRun)}, {"finished", "NULL"}}),
                    source_run_));
  // The same whatever is merged first.
  execute(
      fmt::format("UPDATE main.run SET started = min(started, (SELECT started FROM source.run "
                  "WHERE id = {0})), schema_version = {1};",
                  source_run_, kSchemaVersion));
  if (number(fmt::format("SELECT count(*) FROM main.run r JOIN source.run s ON s.key = r.key WHERE "
                         "s.id = {}",
                         source_run_)) == 0) {
    Statement s(db_, doing_, "UPDATE main.run SET key = ?");
    s << source.plan.key;
    s.run();
  }
  const std::vector<std::pair<std::string, std::string>> ours = {
      {"run_id", std::to_string(kMergedRun)}};
  for (const char* table : {"plan", "shard"})
    execute(fmt::format("INSERT OR IGNORE INTO main.{0} {1} FROM source.{0} s WHERE s.run_id = {2}",
                        table, columns_of(table, ours), source_run_));
  execute(
      fmt::format("INSERT INTO main.environment {} FROM source.environment s WHERE s.run_id = {} "
                  "ON CONFLICT DO UPDATE SET value = min(value, excluded.value)",
                  columns_of("environment", ours), source_run_));
}

void MergeTarget::add_machines() {
  execute(fmt::format(
      "INSERT OR IGNORE INTO main.machine (run_id, key, name) SELECT {0}, s.key, s.name FROM "
      "source.machine s WHERE s.run_id = {1} ORDER BY s.id;"
      "CREATE TEMP TABLE map_machine (old INTEGER PRIMARY KEY, new INTEGER);"
      "INSERT INTO temp.map_machine SELECT s.id, m.id FROM source.machine s JOIN main.machine m ON "
      "m.run_id = {0} AND m.key = s.key WHERE s.run_id = {1};"
      "INSERT INTO main.machine_fact (machine_id, name, value) SELECT m.new, s.name, s.value FROM "
      "source.machine_fact s JOIN temp.map_machine m ON m.old = s.machine_id WHERE true "
      "ON CONFLICT DO UPDATE SET value = min(value, excluded.value);",
      kMergedRun, source_run_));
}

// Two arms are one when they differ in nothing but kernels, threads and the number of the device.
void MergeTarget::add_arms(const MergeSource& source) {
  execute("CREATE TEMP TABLE map_arm (old INTEGER PRIMARY KEY, new INTEGER);");
  const char* same =
      "a.method = s.method AND a.params = s.params AND a.method_version = s.method_version AND "
      "a.role = s.role AND a.model_hash = s.model_hash AND a.draft_hash = s.draft_hash AND "
      "a.dtype = s.dtype AND a.batch = s.batch AND a.kv_cache = s.kv_cache AND a.temperature = "
      "s.temperature AND a.top_p = s.top_p AND a.top_k = s.top_k AND a.max_new = s.max_new AND "
      "a.ignore_eos = s.ignore_eos AND a.settings = s.settings AND "
      // "cuda:1" and "cuda:0"
      "substr(a.device || ':', 1, instr(a.device || ':', ':')) = substr(s.device || ':', 1, "
      "instr(s.device || ':', ':'))";
  std::vector<std::pair<int64_t, int64_t>> pairs;  // of the source, of the target (0 = none)
  {
    Statement s(db_, doing_,
                fmt::format("SELECT s.id, coalesce((SELECT a.id FROM main.arm a WHERE {}), 0) FROM "
                            "source.arm s WHERE s.run_id = {} ORDER BY s.id",
                            same, source_run_));
    while (s.step())
      pairs.emplace_back(sqlite3_column_int64(s.get(), 0), sqlite3_column_int64(s.get(), 1));
  }
  for (auto [old_id, new_id] : pairs) {
    if (new_id == 0) {
      // Another arm of a known key: its row says something else than it was measured with.
      if (number(fmt::format("SELECT count(*) FROM main.arm a JOIN source.arm s ON s.key = a.key "
                             "WHERE s.id = {}",
                             old_id)) > 0)
        throw more_than_planned(source, "arm");
      new_id = number("SELECT coalesce(max(id), 0) + 1 FROM main.arm");
      execute(fmt::format("INSERT INTO main.arm {} FROM source.arm s WHERE s.id = {}",
                          columns_of("arm", {{"id", std::to_string(new_id)},
                                             {"run_id", std::to_string(kMergedRun)}}),
                          old_id));
    } else {
      merge_arm(old_id, new_id);
    }
    execute(fmt::format("INSERT INTO temp.map_arm VALUES ({}, {})", old_id, new_id));
  }
}

void MergeTarget::merge_arm(int64_t old_id, int64_t new_id) {
  Statement s(db_, doing_,
              fmt::format("SELECT a.isa, s.isa, a.device, s.device FROM main.arm a, source.arm s "
                          "WHERE a.id = {} AND s.id = {}",
                          new_id, old_id));
  if (!s.step()) return;
  Statement update(
      db_, doing_,
      fmt::format(
          "UPDATE main.arm AS a SET key = min(a.key, s.key), isa = ?, device = ?, threads = "
          "iif(a.threads = s.threads, s.threads, 0), weight_bytes = max(a.weight_bytes, "
          "s.weight_bytes), extra_parameter_bytes = max(a.extra_parameter_bytes, "
          "s.extra_parameter_bytes), kv_bytes = max(a.kv_bytes, s.kv_bytes), peak_bytes = "
          "max(a.peak_bytes, s.peak_bytes) FROM source.arm s WHERE s.id = {} AND a.id = {}",
          old_id, new_id));
  update << joined_isa(text_at(s, 0), text_at(s, 1)) << joined_device(text_at(s, 2), text_at(s, 3));
  update.run();
}

void MergeTarget::add_prompts() {
  execute(fmt::format(
      "INSERT OR IGNORE INTO main.prompt {0} FROM source.prompt s WHERE s.run_id = {1} ORDER BY "
      "s.id;"
      "CREATE TEMP TABLE map_prompt (old INTEGER PRIMARY KEY, new INTEGER);"
      "INSERT INTO temp.map_prompt SELECT s.id, p.id FROM source.prompt s JOIN main.prompt p ON "
      "p.run_id = {2} AND p.key = s.key WHERE s.run_id = {1};"
      "INSERT OR IGNORE INTO main.shard_prompt SELECT p.new, s.count, s.number FROM "
      "source.shard_prompt s JOIN temp.map_prompt p ON p.old = s.prompt_id;"
      "INSERT OR IGNORE INTO main.rendered SELECT s.* FROM source.rendered s WHERE s.hash IN "
      "(SELECT "
      "rendered_hash FROM source.prompt WHERE run_id = {1});",
      columns_of("prompt", {{"id", "NULL"}, {"run_id", std::to_string(kMergedRun)}}), source_run_,
      kMergedRun));
}

void MergeTarget::add_generations(bool only_run) {
  const std::string kept = "NOT IN (SELECT old FROM temp.double WHERE NOT takes_over)";
  const int64_t call = number("SELECT coalesce(max(call), 0) FROM main.batch_turn");
  execute(
      fmt::format("INSERT INTO main.generation {} FROM source.generation s {} WHERE s.run_id = {} "
                  "AND s.id {} ORDER BY s.id",
                  columns_of("generation", {{"id", fmt::format("s.id + {}", shift_)},
                                            {"run_id", std::to_string(kMergedRun)},
                                            {"arm_id", "a.new"},
                                            {"prompt_id", "p.new"},
                                            {"machine_id", "m.new"}}),
                  kMapped, source_run_, kept));
  // Where all rows of the file are wanted, tables are read from end to end.
  const bool all_rows =
      only_run && number("SELECT count(*) FROM temp.double WHERE NOT takes_over") == 0;
  const std::string wanted = fmt::format("g.run_id = {} AND g.id {}", source_run_, kept);
  const int64_t turn =
      number("SELECT coalesce(max(id), 0) FROM main.turn") + 1 -
      number(all_rows ? std::string("SELECT coalesce(min(id), 0) FROM source.turn")
                      : fmt::format("SELECT coalesce(min(s.id), 0) FROM source.generation g JOIN "
                                    "source.turn s ON s.generation_id = g.id WHERE {}",
                                    wanted));
  const std::string to_generation = fmt::format("s.generation_id + {}", shift_);
  const std::string of_generation =
      all_rows
          ? "FROM source.{} s"
          : "FROM source.generation g CROSS JOIN source.{} s ON s.generation_id = g.id WHERE " +
                wanted;
  execute(fmt::format("INSERT INTO main.turn {} {}",
                      columns_of("turn", {{"id", fmt::format("s.id + {}", turn)},
                                          {"generation_id", to_generation}}),
                      fmt::format(fmt::runtime(of_generation), "turn")));
  const std::string of_turn =
      all_rows
          ? "FROM source.{} s"
          : "FROM source.generation g CROSS JOIN source.turn t ON t.generation_id = g.id CROSS "
            "JOIN source.{} s ON s.turn_id = t.id WHERE " +
                wanted;
  for (const char* table : kOfTurn)
    execute(fmt::format("INSERT INTO main.{} {} {}", table,
                        // Calls of two processes are not one.
                        columns_of(table, {{"turn_id", fmt::format("s.turn_id + {}", turn)},
                                           {"call", fmt::format("s.call + {}", call)}}),
                        fmt::format(fmt::runtime(of_turn), table)));
  for (const char* table : kOfGeneration)
    execute(fmt::format("INSERT OR REPLACE INTO main.{} {} {}", table,
                        columns_of(table, {{"generation_id", to_generation}}),
                        fmt::format(fmt::runtime(of_generation), table)));
  // Of what is there already: scores that it lacks. They are of the same tokens.
  execute(fmt::format(
      "INSERT OR IGNORE INTO main.score {} FROM temp.double d JOIN source.score s ON "
      "s.generation_id "
      "= d.old JOIN source.generation x ON x.id = d.old JOIN main.generation g ON g.id = d.there "
      "WHERE NOT d.takes_over AND x.tokens_hash = g.tokens_hash",
      columns_of("score", {{"generation_id", "d.there"}})));
}

void MergeTarget::add_certificates() {
  execute(
      fmt::format("INSERT INTO main.certificate {} FROM source.certificate s WHERE true ON "
                  "CONFLICT (key) DO UPDATE SET created = excluded.created, method = "
                  "excluded.method, outcome = excluded.outcome, proven = excluded.proven, "
                  "document = excluded.document WHERE (excluded.created, excluded.document) > "
                  "(created, document)",
                  columns_of("certificate", {})));
}

void MergeTarget::close() {
  const int rc = sqlite3_close(db_);
  if (rc != SQLITE_OK) throw_sqlite(db_, rc, path_, "closing it");
  db_ = nullptr;
}

}  // namespace evalrun::results
