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
    for (const int64_t run : results::runs_of_plan(store, plan_.key))
      whole.merge(results::whole_prompts(store, run, plan_));
  }
  return whole;
}

std::optional<int64_t> RunParts::finished() const {
  std::error_code ignored;
  if (!fs::exists(database_, ignored)) return std::nullopt;
  const ResultStore store(database_, ResultStore::Mode::kReadOnly);
  for (const int64_t run : results::runs_of_plan(store, plan_.key))
    if (static_cast<int64_t>(results::whole_prompts(store, run, plan_).size()) >= plan_.prompts)
      return run;
  return std::nullopt;
}

// Of each prompt the generations of one run stay: the first that has it whole.
void RunParts::drop_superseded() const {
  std::set<std::string> seen;
  for (const std::string& file : files()) {
    ResultStore store(file);
    for (const int64_t run : results::runs_of_plan(store, plan_.key)) {
      const std::set<std::string> whole = results::whole_prompts(store, run, plan_);
      for (const auto& [id, key] : results::measured_prompts(store, run)) {
        if (whole.count(key) > 0 && seen.insert(key).second) continue;
        results::drop_generations(store, run, id);
      }
    }
  }
}

int64_t RunParts::put_together() const {
  drop_superseded();
  std::vector<results::MergeInput> inputs;
  for (const std::string& file : files()) {
    const ResultStore store(file, ResultStore::Mode::kReadOnly);
    for (const int64_t run : results::runs_of_plan(store, plan_.key)) inputs.push_back({file, run});
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
