#include "runners/cluster/slurm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

base::Error no_slurm(const std::string& program) {
  return {base::ExitCode::kEnvironment,
          fmt::format("there is no Slurm here: '{}' is not on the PATH", program),
          "run this on a login node of the cluster (often after `module load slurm`); or measure "
          "the shards by hand (evalrun run ... --shard 1/8) and put them together (evalrun merge)"};
}

std::optional<int> task_number(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

}  // namespace

TaskPhase phase_of(const std::string& name) {
  // "CANCELLED by 1000" of sacct.
  const std::string word = name.substr(0, name.find_first_of(" +"));
  const auto among = [&](std::initializer_list<const char*> list) {
    return std::any_of(list.begin(), list.end(), [&](const char* s) { return word == s; });
  };
  if (among(
          {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}))
    return TaskPhase::kWaiting;
  if (among({"RUNNING", "CONFIGURING", "COMPLETING", "SIGNALING", "STAGE_OUT", "SUSPENDED",
             "STOPPED", "RESIZING"}))
    return TaskPhase::kRunning;
  if (word == "COMPLETED") return TaskPhase::kEnded;
  if (among({"FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
             "BOOT_FAIL", "DEADLINE", "REVOKED"}))
    return TaskPhase::kFailed;
  return TaskPhase::kUnknown;
}

std::string array_text(const std::vector<int>& shards) {
  std::vector<int> sorted = shards;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", sorted[i]);
    if (end - i > 1) text += fmt::format("-{}", sorted[end - 1]);
    i = end;
  }
  return text;
}

std::vector<std::string> Slurm::submit_words(const ClusterFolder& folder, const ClusterPlan& plan,
                                             const std::vector<int>& shards) {
  std::vector<std::string> words = {"sbatch", "--parsable", "--export=ALL",
                                    "--array=" + array_text(shards),
                                    fmt::format("--output={}/logs/%a.log", folder.path())};
  words.insert(words.end(), plan.options.begin(), plan.options.end());
  words.push_back(folder.script());
  words.insert(words.end(), plan.words.begin(), plan.words.end());
  return words;
}

std::map<std::string, std::string> Slurm::variables(const ClusterFolder& folder,
                                                    const ClusterPlan& plan) {
  std::map<std::string, std::string> v = {
      {"EVALRUN_CLUSTER_FOLDER", folder.path()},
      {"EVALRUN_CLUSTER_PROGRAM", plan.program},
      {"EVALRUN_CLUSTER_SHARDS", std::to_string(plan.shards)},
  };
  if (!plan.store.empty()) v["EVALRUN_CLUSTER_STORE"] = plan.store;
  if (!plan.local.empty()) v["EVALRUN_CLUSTER_LOCAL"] = plan.local;
  return v;
}

std::string Slurm::submit(const ClusterFolder& folder, const ClusterPlan& plan,
                          const std::vector<int>& shards) const {
  const CommandOutput output = run_(submit_words(folder, plan, shards), variables(folder, plan));
  if (!output.found) throw no_slurm("sbatch");
  // "123" or "123;cluster".
  const std::string first(base::trim(base::split(output.out, '\n').front()));
  const std::string job = first.substr(0, first.find(';'));
  if (output.exit_code == 0 && task_number(job)) return job;
  throw base::Error(base::ExitCode::kEnvironment,
                    fmt::format("sbatch refused the job (exit code {}): {}", output.exit_code,
                                base::trim(output.err.empty() ? output.out : output.err)),
                    "give what your site asks for, such as --option=--partition=NAME or "
                    "--option=--account=NAME");
}

std::map<int, TaskState> Slurm::states(const ClusterPlan& plan) const {
  std::map<int, TaskState> states;
  for (const SubmittedJob& job : plan.jobs) {
    std::map<int, TaskState> tasks;
    ask_squeue(job.id, tasks);
    const bool all = std::all_of(job.shards.begin(), job.shards.end(),
                                 [&](int shard) { return tasks.count(shard) > 0; });
    if (!all) ask_sacct(job.id, tasks);
    for (const int shard : job.shards) states[shard] = tasks[shard];
  }
  return states;
}

// A task a line. Tasks that ended stay known for MinJobAge of slurm.conf, five minutes by default.
void Slurm::ask_squeue(const std::string& job, std::map<int, TaskState>& tasks) const {
  const CommandOutput output = run_(
      {"squeue", "--noheader", "--array", "--states=all", "--jobs=" + job, "--format=%K|%T|%r|%N"},
      {});
  if (!output.found) throw no_slurm("squeue");
  if (output.exit_code != 0) {
    if (output.err.find("Invalid job id") != std::string::npos) return;  // it is forgotten
    // A controller that does not answer: tasks that run must not look lost, or they would be
    // submitted twice.
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("squeue failed (exit code {}): {}", output.exit_code,
                                  base::trim(output.err.empty() ? output.out : output.err)),
                      "the job goes on; ask again when squeue answers");
  }
  for (const std::string& line : base::split(output.out, '\n')) {
    const std::vector<std::string> fields = base::split(base::trim(line), '|');
    if (fields.size() != 4) continue;
    const auto task = task_number(fields[0]);
    if (!task) continue;
    const std::string reason = fields[2] == "None" ? "" : fields[2];
    tasks[*task] = {phase_of(fields[1]), fields[1], reason, fields[3]};
  }
}

void Slurm::ask_sacct(const std::string& job, std::map<int, TaskState>& tasks) const {
  const CommandOutput output =
      run_({"sacct", "--noheader", "--parsable2", "--allocations", "--array", "--jobs=" + job,
            "--format=JobID,State,ExitCode,NodeList"},
           {});
  if (!output.found || output.exit_code != 0) return;  // a site without accounts
  for (const std::string& line : base::split(output.out, '\n')) {
    const std::vector<std::string> fields = base::split(base::trim(line), '|');
    if (fields.size() != 4) continue;
    const size_t at = fields[0].find('_');
    if (at == std::string::npos) continue;
    const auto task = task_number(std::string_view(fields[0]).substr(at + 1));
    if (!task || tasks.count(*task) > 0) continue;
    const std::string reason = fields[2] == "0:0" ? "" : "exit code " + fields[2];
    tasks[*task] = {phase_of(fields[1]), fields[1], reason,
                    fields[3] == "None assigned" ? "" : fields[3]};
  }
}

}  // namespace evalrun::runners
