#include "results/queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "results/read_rows.h"

namespace evalrun::results {
namespace {

constexpr const char* kRunColumns =
    "r.id, r.key, r.label, r.suite, r.suite_json, r.commit_id, r.version, r.command, r.started, "
    "coalesce(r.finished, '')";
constexpr int kRunColumnCount = 10;

RunRow read_run_row(const Row& row) {
  RunRow run;
  run.id = row.integer(0);
  std::string* texts[] = {&run.key,     &run.label,   &run.suite,   &run.suite_json, &run.commit,
                          &run.version, &run.command, &run.started, &run.finished};
  int column = 1;
  for (std::string* text : texts) *text = row.text(column++);
  return run;
}

// Of rows of `generation` under the name g.
constexpr const char* kCounts =
    "count(g.id), coalesce(sum(g.status <> 'ok'), 0), coalesce(sum(g.fault <> ''), 0)";

GenerationCounts read_counts(const Row& row, int column) {
  return {row.integer(column), row.integer(column + 1), row.integer(column + 2)};
}

ArmRecord read_arm(const Row& row, int column) {
  ArmRecord arm;
  for (std::string* text : {&arm.key, &arm.label, &arm.method, &arm.params, &arm.method_version,
                            &arm.role, &arm.lossless, &arm.model, &arm.model_hash, &arm.draft,
                            &arm.draft_hash, &arm.dtype, &arm.isa, &arm.device})
    *text = row.text(column++);
  arm.threads = static_cast<int32_t>(row.integer(column++));
  arm.batch = static_cast<int32_t>(row.integer(column++));
  arm.kv_cache = row.integer(column++) != 0;
  arm.temperature = row.number(column++);
  arm.top_p = row.number(column++);
  arm.top_k = static_cast<int32_t>(row.integer(column++));
  arm.max_new = static_cast<int32_t>(row.integer(column++));
  arm.ignore_eos = row.integer(column++) != 0;
  const auto settings = nlohmann::json::parse(row.text(column++), nullptr, false);
  if (settings.is_object())
    for (const auto& [name, value] : settings.items())
      if (value.is_string()) arm.settings[name] = value.get<std::string>();
  for (int64_t* bytes :
       {&arm.weight_bytes, &arm.extra_parameter_bytes, &arm.kv_bytes, &arm.peak_bytes})
    *bytes = row.integer(column++);
  return arm;
}

}  // namespace

std::optional<RunRow> find_run_row(const ResultStore& store, int64_t run_id) {
  return one(store, fmt::format("SELECT {} FROM run r WHERE r.id = ?", kRunColumns), {run_id},
             read_run_row);
}

std::map<std::string, std::string> environment(const ResultStore& store, int64_t run_id) {
  std::map<std::string, std::string> facts;
  store.query("SELECT name, value FROM environment WHERE run_id = ?", {run_id},
              [&](const Row& row) {
                facts[row.text(0)] = row.text(1);
                return true;
              });
  return facts;
}

std::vector<ArmRow> arms(const ResultStore& store, int64_t run_id) {
  return all(
      store,
      "SELECT id, key, label, method, params, method_version, role, lossless, model, model_hash, "
      "draft, draft_hash, dtype, isa, device, threads, batch, kv_cache, temperature, top_p, top_k, "
      "max_new, ignore_eos, settings, weight_bytes, extra_parameter_bytes, kv_bytes, peak_bytes "
      "FROM arm WHERE run_id = ? ORDER BY id",
      {run_id}, [](const Row& row) {
        return ArmRow{row.integer(0), read_arm(row, 1)};
      });
}

GenerationCounts count_generations(const ResultStore& store, int64_t run_id) {
  return *one(store, fmt::format("SELECT {} FROM generation g WHERE g.run_id = ?", kCounts),
              {run_id}, [](const Row& row) { return read_counts(row, 0); });
}

int64_t planned_generations(const ResultStore& store, int64_t run_id) {
  return one<int64_t>(
             store,
             "SELECT (SELECT count(*) FROM arm WHERE run_id = r.id)"
             " * (SELECT count(*) FROM prompt WHERE run_id = r.id)"
             " * coalesce(json_extract(suite, '$.repeats'), 1)"
             " * coalesce(json_extract(suite, '$.samples'), 1) "
             "FROM (SELECT id, CASE WHEN json_valid(suite_json) THEN suite_json END AS suite"
             "      FROM run) r WHERE r.id = ?",
             {run_id})
      .value_or(0);
}

std::map<int64_t, GenerationCounts> count_by_arm(const ResultStore& store, int64_t run_id) {
  std::map<int64_t, GenerationCounts> counts;
  store.query(fmt::format("SELECT g.arm_id, {} FROM generation g WHERE g.run_id = ? GROUP BY "
                          "g.arm_id",
                          kCounts),
              {run_id}, [&](const Row& row) {
                counts[row.integer(0)] = read_counts(row, 1);
                return true;
              });
  return counts;
}

int64_t count_of_key(const ResultStore& store, const std::string& run_key) {
  return *one<int64_t>(
      store,
      "SELECT count(*) FROM generation JOIN run ON run.id = generation.run_id WHERE run.key = ?",
      {run_key});
}

IdRange generation_ids(const ResultStore& store, int64_t run_id) {
  return *one(store,
              "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM generation WHERE run_id = ?",
              {run_id}, [](const Row& row) {
                return IdRange{row.integer(0), row.integer(1)};
              });
}

std::vector<std::string> tasks(const ResultStore& store, int64_t run_id) {
  return all<std::string>(store, "SELECT DISTINCT task FROM prompt WHERE run_id = ? ORDER BY 1",
                          {run_id});
}

std::vector<BaselineRow> baselines(const ResultStore& store) {
  return all(store,
             fmt::format("SELECT {}, b.name, b.note, b.saved FROM baseline b JOIN run r ON r.id = "
                         "b.run_id ORDER BY b.name",
                         kRunColumns),
             {}, [](const Row& row) {
               return BaselineRow{row.text(kRunColumnCount), row.text(kRunColumnCount + 1),
                                  row.text(kRunColumnCount + 2), read_run_row(row)};
             });
}

std::optional<int64_t> baseline_run(const ResultStore& store, const std::string& name) {
  return one<int64_t>(store, "SELECT run_id FROM baseline WHERE name = ?", {name});
}

std::vector<ListedRun> list_runs(const ResultStore& store) {
  return all(store,
             fmt::format(
                 "SELECT {}, {}, coalesce(max(g.fault), ''), (SELECT coalesce(group_concat(name, "
                 "','), '') FROM baseline b WHERE b.run_id = r.id) "
                 "FROM run r LEFT JOIN generation g ON g.run_id = r.id GROUP BY r.id ORDER BY r.id",
                 kRunColumns, kCounts),
             {}, [](const Row& row) {
               return ListedRun{read_run_row(row), read_counts(row, kRunColumnCount),
                                row.text(kRunColumnCount + 3), row.text(kRunColumnCount + 4)};
             });
}

std::vector<RunRow> newest_runs(const ResultStore& store, int n) {
  return all(store, fmt::format("SELECT {} FROM run r ORDER BY r.id DESC LIMIT ?", kRunColumns),
             {int64_t{n}}, read_run_row);
}

std::string check_file(const ResultStore& store) {
  return one<std::string>(store, "PRAGMA quick_check(1)").value_or("");
}

std::vector<AccountingProblem> accounting_problems(const ResultStore& store) {
  return all(store, "SELECT generation_id, problem FROM v_accounting WHERE fault = ''", {},
             [](const Row& row) {
               return AccountingProblem{row.integer(0), row.text(1)};
             });
}

namespace {

int64_t version_of(const ResultStore& store) {
  return one<int64_t>(store,
                      "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'schema_version'")
      .value_or(0);
}

}  // namespace

bool has_groups(const ResultStore& store) { return version_of(store) >= 9; }
bool has_processor_energy(const ResultStore& store) { return version_of(store) >= 10; }
bool has_batches(const ResultStore& store) { return version_of(store) >= 11; }
bool has_endpoints(const ResultStore& store) { return version_of(store) >= 12; }

bool has_tallies(const ResultStore& store) {
  const auto names = all(store, "PRAGMA main.table_info(generation)", {},
                         [](const Row& row) { return row.text(1); });
  return std::find(names.begin(), names.end(), "tally") != names.end();
}

std::vector<int64_t> wrong_tallies(const ResultStore& store) {
  if (!has_tallies(store)) return {};
  return all<int64_t>(store,
                      "SELECT id FROM generation WHERE tally IS NOT NULL AND tally IS NOT "
                      "generation_tally(id) ORDER BY id");
}

std::vector<EnergyRow> energy_by_prompt(const ResultStore& store, int64_t run_id) {
  return all(store,
             fmt::format("SELECT arm_id, prompt_id, sum(n_tokens), sum(energy_mj) FROM {} WHERE "
                         "run_id = ? AND fault = '' GROUP BY arm_id, prompt_id HAVING "
                         "count(energy_mj) = count(*)",
                         has_processor_energy(store) ? "v_energy" : "v_gpu"),
             {run_id}, [](const Row& row) {
               return EnergyRow{row.integer(0), row.integer(1), row.integer(2), row.integer(3)};
             });
}

}  // namespace evalrun::results
