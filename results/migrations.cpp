#include "results/migrations.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "results/embedded.h"
#include "results/repetition.h"
#include "results/sqlite.h"
#include "results/store.h"

namespace evalrun::results {

std::string embedded_sql(std::string_view name) {
  for (const base::EmbeddedFile& f : embedded_sql())
    if (f.name == name) return std::string(f.text);
  EVALRUN_CHECK(false, "no embedded file '{}'", name);
}

namespace {

// kMigrations[n] turns a database of version n into one of n + 1; tables and indexes only, views
// and triggers are dropped before and made anew afterwards. Entries are never changed once
// released.
struct Migration {
  const char* what;
  const char* sql;
};
constexpr std::array<Migration, kSchemaVersion> kMigrations = {{
    // Version 0 is the layout of development builds: no baselines, no stamp for planted faults.
    {"baselines and the stamp of planted faults",
     "ALTER TABLE generation ADD COLUMN fault TEXT NOT NULL DEFAULT '';"
     "CREATE TABLE baseline ("
     "  name TEXT PRIMARY KEY,"
     "  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,"
     "  note TEXT NOT NULL,"
     "  saved TEXT NOT NULL"
     ") WITHOUT ROWID;"},
    // The primary key changes, which SQLite can only do by copying.
    {"scores by name and convention, with what was seen on the way; rendered prompts",
     "ALTER TABLE score RENAME TO old_score;"
     "CREATE TABLE score ("
     "  generation_id INTEGER NOT NULL REFERENCES generation (id) ON DELETE CASCADE,"
     "  evaluator TEXT NOT NULL,"
     "  version TEXT NOT NULL,"
     "  value REAL,"
     "  extracted TEXT NOT NULL,"
     "  status TEXT NOT NULL,"
     "  detail TEXT NOT NULL,"
     "  suspicious INTEGER NOT NULL,"
     "  facts TEXT NOT NULL,"
     "  PRIMARY KEY (generation_id, evaluator, version)"
     ") WITHOUT ROWID;"
     "INSERT INTO score SELECT generation_id, evaluator, version, value, extracted, status, '', 0, "
     "'{}' FROM old_score;"
     "DROP TABLE old_score;"
     "CREATE TABLE rendered (hash TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;"},
    // The turns are copied, not altered: an added column would come after the wide ones.
    {"steps without a draft; outcomes of draft nodes",
     "CREATE TABLE new_turn ("
     "  id INTEGER PRIMARY KEY,"
     "  generation_id INTEGER NOT NULL REFERENCES generation (id) ON DELETE CASCADE,"
     "  idx INTEGER NOT NULL,"
     "  n_prompt_tokens INTEGER NOT NULL,"
     "  n_tokens INTEGER NOT NULL,"
     "  n_steps INTEGER NOT NULL,"
     "  drafted INTEGER NOT NULL,"
     "  drafted_depth INTEGER NOT NULL,"
     "  accepted INTEGER NOT NULL,"
     "  emitted INTEGER NOT NULL,"
     "  target_forwards INTEGER NOT NULL,"
     "  rows INTEGER NOT NULL,"
     "  undrafted INTEGER NOT NULL,"
     "  draft_ns INTEGER NOT NULL,"
     "  verify_ns INTEGER NOT NULL,"
     "  commit_ns INTEGER NOT NULL,"
     "  other_ns INTEGER NOT NULL,"
     "  prefill_ns INTEGER NOT NULL,"
     "  draft_prefill_ns INTEGER NOT NULL,"
     "  decode_ns INTEGER NOT NULL,"
     "  stop TEXT NOT NULL,"
     "  tokens BLOB NOT NULL,"
     "  text TEXT NOT NULL,"
     "  UNIQUE (generation_id, idx)"
     ");"
     "INSERT INTO new_turn SELECT id, generation_id, idx, n_prompt_tokens, n_tokens, n_steps, "
     "drafted, drafted_depth, accepted, emitted, target_forwards, rows, (SELECT count(*) FROM step "
     "WHERE turn_id = turn.id AND drafted = 0), draft_ns, verify_ns, commit_ns, other_ns, "
     "prefill_ns, draft_prefill_ns, decode_ns, stop, tokens, text FROM turn;"
     "DROP TABLE turn;"
     "ALTER TABLE new_turn RENAME TO turn;"
     "CREATE TABLE node ("
     "  turn_id INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,"
     "  depth INTEGER NOT NULL,"
     "  rank INTEGER NOT NULL,"
     "  tested INTEGER NOT NULL,"
     "  accepted INTEGER NOT NULL,"
     "  PRIMARY KEY (turn_id, depth, rank)"
     ") WITHOUT ROWID;"},
    // No table changes: the views are what is new.
    {"arms of a tuned target are compared with its plain decoding", ""},
    {"certificates of losslessness",
     "CREATE TABLE certificate ("
     "  key TEXT PRIMARY KEY,"
     "  created TEXT NOT NULL,"
     "  method TEXT NOT NULL,"
     "  outcome TEXT NOT NULL CHECK (outcome IN ('holds', 'fails', 'inconclusive', 'lossy')),"
     "  proven TEXT NOT NULL,"
     "  document TEXT NOT NULL"
     ") WITHOUT ROWID;"},
    // distinct_share() and cycle() are ours (add_functions): the stored tokens answer them.
    {"how much answers repeat themselves; replays; what the machine did meanwhile",
     "ALTER TABLE generation ADD COLUMN distinct_share REAL;"
     "ALTER TABLE generation ADD COLUMN cycle INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE generation ADD COLUMN asked INTEGER;"
     "UPDATE generation SET (distinct_share, cycle) = (SELECT min(distinct_share(tokens)), "
     "coalesce(max(cycle(tokens)), 0) FROM turn WHERE generation_id = generation.id);"
     "CREATE TABLE divergence ("
     "  turn_id INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,"
     "  idx INTEGER NOT NULL,"
     "  expected INTEGER NOT NULL,"
     "  found INTEGER NOT NULL,"
     "  gap REAL,"
     "  spacing REAL NOT NULL,"
     "  PRIMARY KEY (turn_id, idx)"
     ") WITHOUT ROWID;"
     "CREATE TABLE clock ("
     "  generation_id INTEGER PRIMARY KEY REFERENCES generation (id) ON DELETE CASCADE,"
     "  device_mhz REAL,"
     "  available_ns INTEGER NOT NULL,"
     "  own_ns INTEGER NOT NULL,"
     "  others_ns INTEGER NOT NULL,"
     "  steal_ns INTEGER NOT NULL,"
     "  preempted INTEGER NOT NULL"
     ");"},
    {"what the GPU did meanwhile",
     "CREATE TABLE gpu ("
     "  generation_id INTEGER PRIMARY KEY REFERENCES generation (id) ON DELETE CASCADE,"
     "  temperature_c REAL,"
     "  power_w REAL,"
     "  energy_mj INTEGER,"
     "  slowed_by TEXT NOT NULL"
     ");"},
    {"how long the GPU was busy",
     "ALTER TABLE gpu ADD COLUMN prefill_ns INTEGER;"
     "ALTER TABLE gpu ADD COLUMN draft_prefill_ns INTEGER;"
     "ALTER TABLE gpu ADD COLUMN draft_ns INTEGER;"
     "ALTER TABLE gpu ADD COLUMN verify_ns INTEGER;"
     "ALTER TABLE gpu ADD COLUMN commit_ns INTEGER;"
     "ALTER TABLE gpu ADD COLUMN graph_misses INTEGER;"},
    {"prompts that belong together",
     "ALTER TABLE prompt ADD COLUMN group_name TEXT NOT NULL DEFAULT '';"},
    // generation_tally() is ours (results/tally_function.h).
    {"energy of the processor; tallies",
     "ALTER TABLE clock ADD COLUMN energy_mj INTEGER;"
     "ALTER TABLE generation ADD COLUMN tally BLOB;"
     "UPDATE generation SET tally = generation_tally(id);"},
    {"batches",
     "CREATE TABLE batch_turn ("
     "  turn_id INTEGER PRIMARY KEY REFERENCES turn (id) ON DELETE CASCADE,"
     "  call INTEGER NOT NULL,"
     "  slot INTEGER NOT NULL,"
     "  first_token_ns INTEGER NOT NULL,"
     "  wall_ns INTEGER NOT NULL"
     ");"
     "CREATE TABLE batch_step ("
     "  turn_id INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,"
     "  idx INTEGER NOT NULL,"
     "  number INTEGER NOT NULL,"
     "  members INTEGER NOT NULL,"
     "  rows INTEGER NOT NULL,"
     "  emitted INTEGER NOT NULL,"
     "  ns INTEGER NOT NULL,"
     "  gap_ns INTEGER NOT NULL,"
     "  PRIMARY KEY (turn_id, idx)"
     ") WITHOUT ROWID;"},
    {"servers measured over HTTP",
     "CREATE TABLE endpoint_turn ("
     "  turn_id INTEGER PRIMARY KEY REFERENCES turn (id) ON DELETE CASCADE,"
     "  first_token_ns INTEGER NOT NULL,"
     "  total_ns INTEGER NOT NULL,"
     "  attempts INTEGER NOT NULL,"
     "  prompt_ms REAL,"
     "  decode_ms REAL,"
     "  prompt_tokens INTEGER,"
     "  cached_tokens INTEGER,"
     "  new_tokens INTEGER,"
     "  drafted INTEGER,"
     "  accepted INTEGER,"
     "  drafts INTEGER,"
     "  target_steps INTEGER,"
     "  arrivals TEXT NOT NULL"
     ");"},
    {"machines and shards",
     "CREATE TABLE plan ("
     "  run_id INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,"
     "  key TEXT NOT NULL,"
     "  arms INTEGER NOT NULL,"
     "  prompts INTEGER NOT NULL,"
     "  repeats INTEGER NOT NULL,"
     "  samples INTEGER NOT NULL"
     ");"
     "CREATE TABLE machine ("
     "  id INTEGER PRIMARY KEY,"
     "  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,"
     "  key TEXT NOT NULL,"
     "  name TEXT NOT NULL,"
     "  UNIQUE (run_id, key)"
     ");"
     "CREATE TABLE machine_fact ("
     "  machine_id INTEGER NOT NULL REFERENCES machine (id) ON DELETE CASCADE,"
     "  name TEXT NOT NULL,"
     "  value TEXT NOT NULL,"
     "  PRIMARY KEY (machine_id, name)"
     ") WITHOUT ROWID;"
     "CREATE TABLE shard ("
     "  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,"
     "  count INTEGER NOT NULL,"
     "  number INTEGER NOT NULL,"
     "  PRIMARY KEY (run_id, count, number)"
     ") WITHOUT ROWID;"
     "CREATE TABLE shard_prompt ("
     "  prompt_id INTEGER NOT NULL REFERENCES prompt (id) ON DELETE CASCADE,"
     "  count INTEGER NOT NULL,"
     "  number INTEGER NOT NULL,"
     "  PRIMARY KEY (prompt_id, count)"
     ") WITHOUT ROWID;"
     "ALTER TABLE generation ADD COLUMN machine_id INTEGER REFERENCES machine (id);"},
}};

// results/repetition.h over a token blob, for migrations.
Repetition repetition_in(sqlite3_value* blob) {
  std::vector<int32_t> tokens(static_cast<size_t>(sqlite3_value_bytes(blob)) / sizeof(int32_t));
  if (!tokens.empty())
    std::memcpy(tokens.data(), sqlite3_value_blob(blob), tokens.size() * sizeof(int32_t));
  return repetition_of(tokens);
}
void add_functions(sqlite3* db) {
  const auto add = [db](const char* name, auto function) {
    sqlite3_create_function(db, name, 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr, function,
                            nullptr, nullptr);
  };
  add("distinct_share", [](sqlite3_context* context, int, sqlite3_value** values) {
    if (const auto share = repetition_in(values[0]).distinct_share)
      sqlite3_result_double(context, *share);
    else
      sqlite3_result_null(context);
  });
  add("cycle", [](sqlite3_context* context, int, sqlite3_value** values) {
    sqlite3_result_int(context, repetition_in(values[0]).cycle);
  });
}

int64_t scalar(sqlite3* db, const std::string& path, std::string_view sql) {
  Statement s(db, path, sql);
  return s.step() ? sqlite3_column_int64(s.get(), 0) : 0;
}

bool is_empty(sqlite3* db, const std::string& path) {
  return scalar(db, path, "SELECT count(*) FROM sqlite_schema") == 0;
}

// nullopt when the file holds no evalrun schema.
std::optional<int64_t> stored_version(sqlite3* db, const std::string& path) {
  if (scalar(db, path, "PRAGMA application_id") != kApplicationId) return std::nullopt;
  if (scalar(db, path, "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'") == 0)
    return std::nullopt;
  Statement s(db, path, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'schema_version'");
  if (!s.step()) return std::nullopt;
  return sqlite3_column_int64(s.get(), 0);
}

void set_version(sqlite3* db, const std::string& path, int version) {
  run_script(db, path,
             fmt::format("INSERT INTO meta VALUES ('schema_version', '{0}') "
                         "ON CONFLICT (name) DO UPDATE SET value = excluded.value; "
                         "PRAGMA user_version = {0}; PRAGMA application_id = {1};",
                         version, kApplicationId),
             "stamping the schema version");
}

// What is made of the tables.
void make_derived(sqlite3* db, const std::string& path) {
  run_script(db, path, embedded_sql("triggers.sql"), "creating triggers");
  run_script(db, path, embedded_sql("views.sql"), "creating views");
}

void drop_derived(sqlite3* db, const std::string& path) {
  std::string script;
  Statement s(db, path, "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')");
  const auto text = [&](int column) {
    return reinterpret_cast<const char*>(sqlite3_column_text(s.get(), column));
  };
  while (s.step()) script += fmt::format("DROP {} \"{}\";", text(0), text(1));
  run_script(db, path, script, "dropping views");
}

void create(sqlite3* db, const std::string& path) {
  Transaction t(db, path);
  if (is_empty(db, path)) {  // else another process was faster
    run_script(db, path, embedded_sql("schema.sql"), "creating tables");
    make_derived(db, path);
    set_version(db, path, kSchemaVersion);
  }
  t.commit();
}

void back_up(sqlite3* db, const std::string& path, int64_t version) {
  std::string copy = fmt::format("{}.bak-v{}", path, version);
  for (int i = 2; ::access(copy.c_str(), F_OK) == 0; ++i)  // an earlier copy is never overwritten
    copy = fmt::format("{}.bak-v{}-{}", path, version, i);
  Statement s(db, path, "VACUUM INTO ?");
  s << copy;
  s.run();
}

// Development builds wrote version 10 before it had tallies.
constexpr int64_t kFirstWithTallies = 10;
void add_missing_tallies(sqlite3* db, const std::string& path) {
  if (scalar(db, path,
             "SELECT count(*) FROM pragma_table_info('generation') WHERE name = 'tally'") != 0)
    return;
  run_script(db, path,
             "ALTER TABLE generation ADD COLUMN tally BLOB;"
             "UPDATE generation SET tally = generation_tally(id);",
             "adding tallies");
}

void migrate(sqlite3* db, const std::string& path, int64_t version) {
  back_up(db, path, version);
  add_functions(db);
  // A table that is replaced must not take the rows that refer to it along. Off is SQLite's
  // default, but not every build's, and inside a transaction it cannot be changed.
  run_script(db, path, "PRAGMA foreign_keys = OFF", "migrating");
  Transaction t(db, path);
  if (stored_version(db, path) != version) return;  // another process was faster
  drop_derived(db, path);
  if (version == kFirstWithTallies) add_missing_tallies(db, path);
  for (int64_t v = version; v < kSchemaVersion; ++v)
    run_script(db, path, kMigrations[v].sql,
               fmt::format("migrating from version {} to {} ({})", v, v + 1, kMigrations[v].what));
  make_derived(db, path);
  set_version(db, path, kSchemaVersion);
  t.commit();
}

}  // namespace

void prepare_schema(sqlite3* db, const std::string& path, bool writable) {
  if (is_empty(db, path)) {
    if (!writable)
      throw base::data_error(path, "", "holds no results yet", "measure first: evalrun run quick");
    create(db, path);
  }
  const std::optional<int64_t> version = stored_version(db, path);
  if (!version)
    throw base::data_error(path, "", "is an SQLite database, but not one of evalrun",
                           "choose another file with --db; this one is left as it is");
  if (*version > kSchemaVersion)
    throw base::data_error(
        path, "schema version",
        fmt::format("the file has version {}, this program knows up to {}", *version,
                    kSchemaVersion),
        "use the evalrun that wrote it (or a newer one), or choose another file with --db");
  EVALRUN_CHECK(*version >= 0, "schema version {}", *version);
  if (*version == kSchemaVersion) return;
  if (!writable && *version >= kOldestReadable) return;
  if (!writable)
    throw base::data_error(
        path, "schema version",
        fmt::format("the file has version {}, this program reads {}", *version, kSchemaVersion),
        "open it once with a command that writes (evalrun run or evalrun baseline save): it is "
        "migrated after a copy has been made");
  migrate(db, path, *version);
}

}  // namespace evalrun::results
