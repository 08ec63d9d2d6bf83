#include "results/store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "results/migrations.h"
#include "results/repetition.h"
#include "results/sqlite.h"
#include "results/tally.h"
#include "results/tally_function.h"
#include "results/turn_rows.h"

namespace evalrun::results {

namespace {

// How long to wait for another process's transaction; ours take milliseconds.
constexpr int kBusyTimeoutMs = 5000;

// Both hashes delimit turns by their lengths, so that {1,2},{3} and {1},{2,3} differ. 128 bits.
std::string hash_of_tokens(const std::vector<TurnRecord>& turns) {
  std::string bytes;
  for (const TurnRecord& t : turns)
    bytes += fmt::format("{}:", t.tokens.size()) + token_blob(t.tokens);
  return base::sha256_hex(bytes).substr(0, 32);
}
std::string hash_of_steps(const std::vector<TurnRecord>& turns) {
  std::string text;
  for (const TurnRecord& t : turns) {
    text += fmt::format("{}:", t.steps.size());
    for (const StepRecord& s : t.steps)
      text += fmt::format("{},{},{},{};", s.drafted, s.drafted_depth, s.accepted, s.emitted);
  }
  return base::sha256_hex(text).substr(0, 32);
}

// Of the turn that repeats itself most.
Repetition repetition_of_turns(const std::vector<TurnRecord>& turns) {
  Repetition worst;
  for (const TurnRecord& t : turns) {
    const Repetition r = repetition_of(t.tokens);
    worst.cycle = std::max(worst.cycle, r.cycle);
    if (r.distinct_share)
      worst.distinct_share = std::min(worst.distinct_share.value_or(1), *r.distinct_share);
  }
  return worst;
}
std::optional<int64_t> asked_of(const std::vector<TurnRecord>& turns) {
  std::optional<int64_t> asked;
  for (const TurnRecord& t : turns)
    if (t.asked) asked = asked.value_or(0) + *t.asked;
  return asked;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char buffer[32];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return buffer;
}

// Texts come from a detokenizer cut at arbitrary places: replace what is not UTF-8 rather than
// throw.
std::string json_of(const nlohmann::json& j) {
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

bool Row::is_null(int column) const { return sqlite3_column_type(stmt_, column) == SQLITE_NULL; }
int64_t Row::integer(int column) const { return sqlite3_column_int64(stmt_, column); }
double Row::number(int column) const { return sqlite3_column_double(stmt_, column); }
std::string Row::text(int column) const {
  const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, column));
  return p == nullptr ? "" : std::string(p, sqlite3_column_bytes(stmt_, column));
}
std::string Row::blob(int column) const {
  const auto* p = static_cast<const char*>(sqlite3_column_blob(stmt_, column));
  return p == nullptr ? "" : std::string(p, sqlite3_column_bytes(stmt_, column));
}
std::string_view Row::view(int column) const {
  const auto* p = static_cast<const char*>(sqlite3_column_blob(stmt_, column));
  return p == nullptr
             ? std::string_view()
             : std::string_view(p, static_cast<size_t>(sqlite3_column_bytes(stmt_, column)));
}
int Row::columns() const { return sqlite3_column_count(stmt_); }
std::string Row::name(int column) const { return sqlite3_column_name(stmt_, column); }

struct ResultStore::Impl {
  explicit Impl(const std::string& p) : path(p) {}
  ~Impl() {
    forget_prepared();
    tally.forget_statements();
    sqlite3_close_v2(db);
  }
  int64_t last_id() const { return sqlite3_last_insert_rowid(db); }
  // Prepared once: resume and storing run them for every cell.
  Statement& prepared(std::unique_ptr<Statement>& slot, std::string_view sql) {
    if (!slot) slot = std::make_unique<Statement>(db, path, sql);
    return *slot;
  }
  // An error in the middle leaves a prepared statement half bound.
  void forget_prepared() {
    insert_generation.reset(), insert_clock.reset(), insert_gpu.reset(), insert_score.reset();
    turns.forget_statements();
  }
  void insert(int64_t generation_id, const ScoreRecord& score) {
    Statement& s = prepared(insert_score, "INSERT INTO score VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
    s << generation_id << score.evaluator << score.version << score.value << score.extracted
      << score.status << score.detail << int64_t{score.suspicious} << score.facts;
    s.run();
  }
  void insert(int64_t generation_id, const ClockRecord& c) {
    Statement& s = prepared(insert_clock, "INSERT INTO clock VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    s << generation_id << c.device_mhz << c.available_ns << c.own_ns << c.others_ns << c.steal_ns
      << c.preempted << c.energy_mj;
    s.run();
  }
  void insert(int64_t generation_id, const GpuRecord& g) {
    Statement& s = prepared(insert_gpu, "INSERT INTO gpu VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    s << generation_id << g.temperature_c << g.power_w << g.energy_mj << g.slowed_by;
    const auto busy = [&](int64_t GpuBusy::*phase) {
      return g.busy ? std::optional((*g.busy).*phase) : std::nullopt;
    };
    s << busy(&GpuBusy::prefill_ns) << busy(&GpuBusy::draft_prefill_ns) << busy(&GpuBusy::draft_ns)
      << busy(&GpuBusy::verify_ns) << busy(&GpuBusy::commit_ns) << busy(&GpuBusy::graph_misses);
    s.run();
  }
  int64_t id_of(std::string_view sql, int64_t run_id, const std::string& key) {
    Statement s(db, path, sql);
    s << run_id << key;
    return s.step() ? sqlite3_column_int64(s.get(), 0) : 0;
  }

  const std::string& path;
  sqlite3* db = nullptr;
  std::unique_ptr<Statement> insert_generation, insert_clock, insert_gpu, insert_score;
  TurnRows turns{path};
  TallyFunction tally;
};

ResultStore::ResultStore(const std::string& path, Mode mode)
    : path_(path), impl_(std::make_unique<Impl>(path_)) {
  const bool writable = mode == Mode::kReadWrite;
  const auto open = [&](const std::string& name, int flags) {
    return sqlite3_open_v2(name.c_str(), &impl_->db, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  };
  int rc =
      open(path_, writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
  if (rc != SQLITE_OK) throw_sqlite(impl_->db, rc, path_, "opening it");
  sqlite3_busy_timeout(impl_->db, kBusyTimeoutMs);
  // A file that may only be read is opened without complaint: ask before anything is half done.
  if (writable && sqlite3_db_readonly(impl_->db, "main") == 1)
    throw_sqlite(nullptr, SQLITE_READONLY, path_, "opening it");
  // WAL needs a shared-memory file beside the database. Where none can be made (read-only folder)
  // and no log is left behind, the file cannot change and may be read as it is.
  const auto probe = [&] {
    return sqlite3_exec(impl_->db, "SELECT 1 FROM sqlite_schema", nullptr, nullptr, nullptr);
  };
  struct stat log;
  const bool has_log = ::stat((path_ + "-wal").c_str(), &log) == 0 && log.st_size > 0;
  if (const int code = writable ? SQLITE_OK : probe();
      !has_log && (code == SQLITE_CANTOPEN || code == SQLITE_READONLY)) {
    sqlite3_close_v2(impl_->db);
    impl_->db = nullptr;
    std::string escaped;
    for (const char c : path_)
      escaped += std::isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '_'
                     ? std::string(1, c)
                     : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    rc = open("file:" + escaped + "?immutable=1", SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    if (rc != SQLITE_OK) throw_sqlite(impl_->db, rc, path_, "opening it");
  }
  impl_->tally.add_to(impl_->db);
  prepare_schema(impl_->db, path_, writable);
  // Only now: a foreign or newer database must be left as it was.
  if (writable) {
    // FULL: the log is synced at each commit, so that a generation, once stored, survives a power
    // cut and not only a killed process. One fsync per generation, outside every timed region.
    run_script(impl_->db, path_,
               "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
               // Only who has read once holds the file in that mode, and keeps a merge from
               // replacing it.
               "SELECT 1 FROM sqlite_schema;",
               "setting it up");
  }
}

ResultStore::~ResultStore() = default;

int64_t ResultStore::add_run(const RunRecord& r) {
  Transaction transaction(impl_->db, path_);
  const auto find = [&] {
    Statement s(impl_->db, path_, "SELECT id FROM run WHERE key = ?");
    s << r.key;
    return s.step() ? sqlite3_column_int64(s.get(), 0) : int64_t{0};
  };
  if (const int64_t id = find()) return id;
  Statement s(
      impl_->db, path_,
      "INSERT INTO run (key, label, suite, suite_json, commit_id, version, command, started, "
      "schema_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
  s << r.key << r.label << r.suite << r.suite_json << r.commit << r.version << r.command
    << (r.started.empty() ? utc_now() : r.started) << kSchemaVersion;
  s.run();
  const int64_t id = impl_->last_id();
  Statement e(impl_->db, path_, "INSERT INTO environment VALUES (?, ?, ?)");
  for (const auto& [name, value] : r.environment) {
    e << id << name << value;
    e.run();
  }
  transaction.commit();
  return id;
}

void ResultStore::add_environment(int64_t run_id, const std::string& name,
                                  const std::string& value) {
  execute("INSERT OR IGNORE INTO environment VALUES (?, ?, ?)", {run_id, name, value});
}

int64_t ResultStore::add_arm(int64_t run_id, const ArmRecord& a) {
  Transaction transaction(impl_->db, path_);
  if (const int64_t id =
          impl_->id_of("SELECT id FROM arm WHERE run_id = ? AND key = ?", run_id, a.key))
    return id;
  Statement s(
      impl_->db, path_,
      "INSERT INTO arm (run_id, key, label, method, params, method_version, role, lossless, "
      "model, model_hash, draft, draft_hash, dtype, isa, device, threads, batch, kv_cache, "
      "temperature, top_p, top_k, max_new, ignore_eos, settings, weight_bytes, "
      "extra_parameter_bytes, kv_bytes, peak_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  s << run_id << a.key << a.label << a.method << a.params << a.method_version << a.role
    << a.lossless << a.model << a.model_hash << a.draft << a.draft_hash << a.dtype << a.isa
    << a.device << a.threads << a.batch << a.kv_cache << a.temperature << a.top_p << a.top_k
    << a.max_new << a.ignore_eos << json_of(nlohmann::json(a.settings)) << a.weight_bytes
    << a.extra_parameter_bytes << a.kv_bytes << a.peak_bytes;
  s.run();
  const int64_t id = impl_->last_id();
  transaction.commit();
  return id;
}

int64_t ResultStore::add_prompt(int64_t run_id, const PromptRecord& p) {
  Transaction transaction(impl_->db, path_);
  if (const int64_t id =
          impl_->id_of("SELECT id FROM prompt WHERE run_id = ? AND key = ?", run_id, p.key))
    return id;
  Statement s(
      impl_->db, path_,
      "INSERT INTO prompt (run_id, key, task, name, category, language, rendered_hash, turns, "
      "reference, group_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  s << run_id << p.key << p.task << p.id << p.category << p.language << p.rendered_hash
    << json_of(nlohmann::json(p.turns));
  if (p.reference)
    s << *p.reference;
  else
    s << nullptr;
  s << p.group;
  s.run();
  const int64_t id = impl_->last_id();
  if (!p.rendered.empty())
    execute("INSERT OR IGNORE INTO rendered (hash, text) VALUES (?, ?)",
            {p.rendered_hash, p.rendered});
  transaction.commit();
  return id;
}

void ResultStore::update_arm_bytes(int64_t arm_id, const ArmRecord& a) {
  execute(
      "UPDATE arm SET weight_bytes = max(weight_bytes, ?), extra_parameter_bytes = "
      "max(extra_parameter_bytes, ?), kv_bytes = max(kv_bytes, ?), peak_bytes = max(peak_bytes, ?) "
      "WHERE id = ?",
      {a.weight_bytes, a.extra_parameter_bytes, a.kv_bytes, a.peak_bytes, arm_id});
}

int64_t ResultStore::add_generation(int64_t run_id, int64_t arm_id, int64_t prompt_id,
                                    const GenerationRecord& g,
                                    const std::vector<ScoreRecord>& scores) {
  EVALRUN_CHECK(g.texts.empty() || g.texts.size() == g.turns.size(), "{} texts for {} turns",
                g.texts.size(), g.turns.size());
  EVALRUN_CHECK(!has_generation(arm_id, prompt_id, g.repeat, g.sample),
                "arm {}, prompt {}, repeat {}, sample {} is measured already", arm_id, prompt_id,
                g.repeat, g.sample);
  try {
    Transaction transaction(impl_->db, path_);
    Statement& insert_generation =
        impl_->prepared(impl_->insert_generation,
                        "INSERT INTO generation (run_id, arm_id, prompt_id, repeat, sample, seed, "
                        "block, slot, status, "
                        "fault, tokens_hash, steps_hash, total_ns, tokenize_ns, detokenize_ns, "
                        "started, distinct_share, cycle, asked, machine_id, tally) VALUES (?, ?, "
                        "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    const Repetition repetition = repetition_of_turns(g.turns);
    insert_generation << run_id << arm_id << prompt_id << g.repeat << g.sample
                      << static_cast<int64_t>(g.seed) << g.block << g.slot << g.status << g.fault
                      << hash_of_tokens(g.turns) << hash_of_steps(g.turns) << g.total_ns
                      << g.tokenize_ns << g.detokenize_ns
                      << (g.started.empty() ? utc_now() : g.started) << repetition.distinct_share
                      << repetition.cycle << asked_of(g.turns) << g.machine_id;
    if (const auto tally = packed(tally_of(g.turns)))
      insert_generation.blob(*tally);
    else
      insert_generation << nullptr;
    insert_generation.run();
    const int64_t id = impl_->last_id();
    for (size_t i = 0; i < g.turns.size(); ++i)
      impl_->turns.insert(impl_->db, id, i, g.turns[i],
                          g.texts.empty() ? std::string() : g.texts[i], g.batch_call);
    if (g.clock) impl_->insert(id, *g.clock);
    if (g.gpu) impl_->insert(id, *g.gpu);
    for (const ScoreRecord& score : scores) impl_->insert(id, score);
    transaction.commit();
    return id;
  } catch (...) {
    impl_->forget_prepared();
    throw;
  }
}

void ResultStore::put_score(int64_t generation_id, const ScoreRecord& score) {
  put_scores({{generation_id, score}});
}

void ResultStore::put_scores(const std::vector<std::pair<int64_t, ScoreRecord>>& scores) {
  try {
    Transaction transaction(impl_->db, path_);
    for (const auto& [generation_id, score] : scores) {
      execute("DELETE FROM score WHERE generation_id = ? AND evaluator = ? AND version = ?",
              {generation_id, score.evaluator, score.version});
      impl_->insert(generation_id, score);
    }
    transaction.commit();
  } catch (...) {
    impl_->forget_prepared();
    throw;
  }
}

bool ResultStore::has_generation(int64_t arm_id, int64_t prompt_id, int repeat, int sample) const {
  Statement s(
      impl_->db, path_,
      "SELECT 1 FROM generation WHERE arm_id = ? AND prompt_id = ? AND repeat = ? AND sample = ?");
  s << arm_id << prompt_id << repeat << sample;
  return s.step();
}

int64_t ResultStore::next_batch_call(int64_t arm_id) const {
  Statement s(impl_->db, path_,
              "SELECT coalesce(max(b.call), 0) + 1 FROM generation g JOIN turn t ON "
              "t.generation_id = g.id JOIN batch_turn b ON b.turn_id = t.id WHERE g.arm_id = ?");
  s << arm_id;
  s.step();
  return sqlite3_column_int64(s.get(), 0);
}

void ResultStore::finish_run(int64_t run_id) {
  execute("UPDATE run SET finished = ? WHERE id = ? AND finished IS NULL", {utc_now(), run_id});
}

std::optional<int64_t> ResultStore::find_run(const std::string& name) const {
  if (name.empty() || name == "latest") {
    Statement s(impl_->db, path_,
                "SELECT id FROM run ORDER BY label = 'check' OR label LIKE 'check with %', id DESC "
                "LIMIT 1");
    return s.step() ? std::optional(sqlite3_column_int64(s.get(), 0)) : std::nullopt;
  }
  // In this order, so that a label made of digits cannot hide a run's number.
  for (const char* sql :
       {"SELECT id FROM run WHERE CAST(id AS TEXT) = ?", "SELECT id FROM run WHERE key = ?",
        "SELECT id FROM run WHERE label = ? ORDER BY id DESC LIMIT 1",
        "SELECT run_id FROM baseline WHERE name = ?"}) {
    Statement s(impl_->db, path_, sql);
    s << name;
    if (s.step()) return sqlite3_column_int64(s.get(), 0);
  }
  return std::nullopt;
}

void ResultStore::save_baseline(const std::string& name, int64_t run_id, const std::string& note) {
  execute(
      "INSERT INTO baseline (name, run_id, note, saved) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO "
      "UPDATE SET run_id = excluded.run_id, note = excluded.note, saved = excluded.saved",
      {name, run_id, note, utc_now()});
}

bool ResultStore::remove_baseline(const std::string& name) {
  execute("DELETE FROM baseline WHERE name = ?", {name});
  return sqlite3_changes(impl_->db) > 0;
}

namespace {
void bind_all(Statement& s, const std::vector<Value>& parameters) {
  for (const Value& v : parameters) std::visit([&](const auto& x) { s << x; }, v);
}
}  // namespace

std::vector<StepRecord> ResultStore::steps(int64_t turn_id, std::optional<int64_t> limit) const {
  std::vector<StepRecord> steps;
  query(
      "SELECT rows, drafted, drafted_depth, accepted, emitted, target_forwards, draft_ns, "
      "verify_ns, commit_ns, other_ns FROM step WHERE turn_id = ? ORDER BY idx LIMIT ?",
      {turn_id, limit.value_or(-1)}, [&](const Row& row) {
        StepRecord s;
        int32_t* counters[] = {&s.rows,     &s.drafted, &s.drafted_depth,
                               &s.accepted, &s.emitted, &s.target_forwards};
        int64_t* times[] = {&s.draft_ns, &s.verify_ns, &s.commit_ns, &s.other_ns};
        int column = 0;
        for (int32_t* n : counters) *n = static_cast<int32_t>(row.integer(column++));
        for (int64_t* n : times) *n = row.integer(column++);
        steps.push_back(s);
        return true;
      });
  return steps;
}

void ResultStore::query(const std::string& sql, const std::vector<Value>& parameters,
                        const std::function<bool(const Row&)>& f) const {
  Statement s(impl_->db, path_, sql);
  bind_all(s, parameters);
  const Row row(s.get());
  while (s.step())
    if (!f(row)) return;
}

void ResultStore::execute(const std::string& sql, const std::vector<Value>& parameters) {
  Statement s(impl_->db, path_, sql);
  bind_all(s, parameters);
  s.run();
}

}  // namespace evalrun::results
