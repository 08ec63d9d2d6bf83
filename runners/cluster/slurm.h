// Slurm by its own commands: sbatch submits an array, squeue tells of tasks that wait, run or ended
// a short time ago, sacct of older ones where the site keeps accounts.
// Options and states: https://slurm.schedmd.com/sbatch.html, squeue.html, sacct.html.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runners/cluster/cluster_folder.h"
#include "runners/cluster/command_output.h"

namespace evalrun::runners {

enum class TaskPhase {
  kUnknown,  // the scheduler has forgotten it, or never knew it
  kWaiting,
  kRunning,
  kEnded,   // with exit code 0
  kFailed,  // killed, out of time or memory, cancelled, or by its exit code
};

struct TaskState {
  TaskPhase phase = TaskPhase::kUnknown;
  std::string name;    // the scheduler's: "RUNNING", "OUT_OF_MEMORY"
  std::string reason;  // "Resources", "NonZeroExitCode"; may be empty
  std::string node;
};
// A state as squeue and sacct spell it.
TaskPhase phase_of(const std::string& name);

class Slurm {
 public:
  // Tests hand in a runner of their own.
  explicit Slurm(CommandRunner run = run_command) : run_(std::move(run)) {}

  // The words that submit these shards, by which a user can do it by hand.
  static std::vector<std::string> submit_words(const ClusterFolder& folder, const ClusterPlan& plan,
                                               const std::vector<int>& shards);
  // Variables for the script, beside those that --export=ALL takes along.
  static std::map<std::string, std::string> variables(const ClusterFolder& folder,
                                                      const ClusterPlan& plan);
  // Returns the job's number. Throws kEnvironment where there is no sbatch, or it refuses.
  std::string submit(const ClusterFolder& folder, const ClusterPlan& plan,
                     const std::vector<int>& shards) const;
  // By shard, of the latest job that was to measure it. Throws kEnvironment where there is no
  // squeue, or it fails.
  std::map<int, TaskState> states(const ClusterPlan& plan) const;

 private:
  void ask_squeue(const std::string& job, std::map<int, TaskState>& tasks) const;
  void ask_sacct(const std::string& job, std::map<int, TaskState>& tasks) const;
  CommandRunner run_;
};

// "1-3,7": how an array names its tasks. Sorted, each once.
std::string array_text(const std::vector<int>& shards);

}  // namespace evalrun::runners
