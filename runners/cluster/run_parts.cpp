#include "runners/cluster/run_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "results/copy_run.h"
#include "results/machines.h"
#include "results/merge/merge_runs.h"

namespace evalrun::runners {
namespace {

namespace fs = std::filesystem;
using results::ResultStore;

constexpr const char* kMerged = "merged.db";

std::vector<int64_t> runs_of_plan(const ResultStore& store, const std::string& key) {
  std::vector<int64_t> runs;
  if (!results::has_machines(store)) return runs;
  store.query("SELECT run_id FROM plan WHERE key = ? ORDER BY run_id", {key},
              [&](const results::Row& row) {
                runs.push_back(row.integer(0));
                return true;
              });
  return runs;
}

std::set<std::string> whole_prompts_of(const ResultStore& store, int64_t run,
                                       const results::PlanRecord& plan) {
  std::set<std::string> whole;
  store.query(
      "SELECT p.key FROM generation g JOIN prompt p ON p.id = g.prompt_id WHERE g.run_id = ? GROUP "
      "BY p.key HAVING count(*) >= ?",
      {run, plan.arms * plan.repeats * plan.samples}, [&](const results::Row& row) {
        whole.insert(row.text(0));
        return true;
      });
  return whole;
}

}  // namespace

RunParts::RunParts(std::string database, results::PlanRecord plan)
    : database_(std::move(database)), plan_(std::move(plan)) {
  folder_ = fmt::format("{}.parts/{}", database_, plan_.key.substr(0, 12));
}

std::string RunParts::file(int rank) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error)
    throw base::data_error(folder_, "", fmt::format("cannot be made: {}", error.message()),
                           "name a --db in a folder that every process may write to");
  return fmt::format("{}/{}.db", folder_, rank);
}

std::vector<std::string> RunParts::files() const {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (entry.path().extension() == ".db" && entry.path().filename() != kMerged)
      files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::set<std::string> RunParts::whole_prompts() const {
  std::set<std::string> whole;
  for (const std::string& file : files()) {
    const ResultStore store(file, ResultStore::Mode::kReadOnly);
    for (const int64_t run : runs_of_plan(store, plan_.key))
      whole.merge(whole_prompts_of(store, run, plan_));
  }
  return whole;
}

std::optional<int64_t> RunParts::finished() const {
  std::error_code ignored;
  if (!fs::exists(database_, ignored)) return std::nullopt;
  const ResultStore store(database_, ResultStore::Mode::kReadOnly);
  for (const int64_t run : runs_of_plan(store, plan_.key))
    if (static_cast<int64_t>(whole_prompts_of(store, run, plan_).size()) >= plan_.prompts)
      return run;
  return std::nullopt;
}

// Of each prompt the generations of one run stay: the first that has it whole.
void RunParts::drop_superseded() const {
  std::set<std::string> seen;
  for (const std::string& file : files()) {
    ResultStore store(file);
    for (const int64_t run : runs_of_plan(store, plan_.key)) {
      const std::set<std::string> whole = whole_prompts_of(store, run, plan_);
      std::vector<std::pair<int64_t, std::string>> stored;
      store.query(
          "SELECT DISTINCT p.id, p.key FROM generation g JOIN prompt p ON p.id = g.prompt_id WHERE "
          "g.run_id = ?",
          {run}, [&](const results::Row& row) {
            stored.emplace_back(row.integer(0), row.text(1));
            return true;
          });
      for (const auto& [id, key] : stored) {
        if (whole.count(key) > 0 && seen.insert(key).second) continue;
        store.execute("DELETE FROM generation WHERE run_id = ? AND prompt_id = ?", {run, id});
      }
    }
  }
}

int64_t RunParts::put_together() const {
  drop_superseded();
  std::vector<results::MergeInput> inputs;
  for (const std::string& file : files()) {
    const ResultStore store(file, ResultStore::Mode::kReadOnly);
    for (const int64_t run : runs_of_plan(store, plan_.key)) inputs.push_back({file, run});
  }
  const std::string merged = fmt::format("{}/{}", folder_, kMerged);
  std::error_code ignored;
  fs::remove(merged, ignored);  // of an attempt that was cut off
  const results::MergeOutcome outcome = results::merge_runs(merged, inputs);
  EVALRUN_CHECK(outcome.complete(), "{} of {} generations are there", outcome.stored,
                outcome.plan.generations());
  int64_t run = 0;
  {
    const ResultStore source(merged, ResultStore::Mode::kReadOnly);
    ResultStore target(database_);
    run = results::copy_run(source, outcome.run_id, target);
  }
  fs::remove_all(folder_, ignored);
  fs::remove(fs::path(folder_).parent_path(), ignored);  // where it is empty
  return run;
}

}  // namespace evalrun::runners
