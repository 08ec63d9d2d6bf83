// Questions that several rooms ask of a result database, by name. What only one report asks, and
// what must be fast, stays where it is asked.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results/records.h"
#include "results/store.h"

namespace evalrun::results {

struct RunRow {
  int64_t id = 0;
  std::string key, label, suite, suite_json, commit, version, command, started;
  std::string finished;  // "" until every cell is measured
};
std::optional<RunRow> find_run_row(const ResultStore& store, int64_t run_id);

// Facts about the machine and the files of a run, by name.
std::map<std::string, std::string> environment(const ResultStore& store, int64_t run_id);

struct ArmRow {
  int64_t id = 0;
  ArmRecord record;
};
std::vector<ArmRow> arms(const ResultStore& store, int64_t run_id);  // as planned

struct GenerationCounts {
  int64_t stored = 0, failed = 0, planted = 0;  // planted: with a fault of a self-test
};
GenerationCounts count_generations(const ResultStore& store, int64_t run_id);
// Of the whole run, stored or not: its arms times prompts times the repeats and samples of its
// suite, which are 1 where the suite does not say. 0 without such a run.
int64_t planned_generations(const ResultStore& store, int64_t run_id);
std::map<int64_t, GenerationCounts> count_by_arm(const ResultStore& store, int64_t run_id);
int64_t count_of_key(const ResultStore& store, const std::string& run_key);

// Whether prompts have groups: not in files before version 9.
bool has_groups(const ResultStore& store);
// Whether clocks have the energy of the processor: not in files before version 10.
bool has_processor_energy(const ResultStore& store);
// Whether generations have a column `tally`: not in files before version 10, nor in all of
// version 10.
bool has_tallies(const ResultStore& store);
// Whether turns may have been decoded in a batch (tables and views `batch_*`): not in files before
// version 11.
bool has_batches(const ResultStore& store);
// Whether turns may be a server's answers (table `endpoint_turn`): not in files before version 12.
bool has_endpoints(const ResultStore& store);

// Sums over the finished generations of an arm and a prompt, all of which have their energy.
struct EnergyRow {
  int64_t arm_id = 0, prompt_id = 0, tokens = 0, energy_mj = 0;
};
std::vector<EnergyRow> energy_by_prompt(const ResultStore& store, int64_t run_id);

struct IdRange {
  int64_t first = 0, last = 0;  // 0 where there is none
};
IdRange generation_ids(const ResultStore& store, int64_t run_id);

std::vector<std::string> tasks(const ResultStore& store, int64_t run_id);

struct BaselineRow {
  std::string name, note, saved;
  RunRow run;
};
std::vector<BaselineRow> baselines(const ResultStore& store);  // by name
std::optional<int64_t> baseline_run(const ResultStore& store, const std::string& name);

struct ListedRun {
  RunRow run;
  GenerationCounts counts;
  std::string fault;      // one that was planted in it
  std::string baselines;  // their names, with commas
};
std::vector<ListedRun> list_runs(const ResultStore& store);  // oldest first
std::vector<RunRow> newest_runs(const ResultStore& store, int n);

// SQLite's own check of the file, "ok" or what is wrong.
std::string check_file(const ResultStore& store);
struct AccountingProblem {
  int64_t generation_id = 0;
  std::string problem;
};
std::vector<AccountingProblem> accounting_problems(const ResultStore& store);
// Generations whose tally is not what their turns, steps and nodes add up to.
std::vector<int64_t> wrong_tallies(const ResultStore& store);

}  // namespace evalrun::results
