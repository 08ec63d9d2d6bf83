// The folder of a run that a cluster measures, on a file system that all nodes see:
//
//   cluster.json              the plan and the jobs; written by who submits, read by who follows
//   evalrun.sbatch            the script of the jobs
//   shards/3-of-8.db          copies of the shards' databases, each written by one task
//   shards/3-of-8.status.json what its task last said
//   logs/3.log                what its task printed
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace evalrun::runners {

struct SubmittedJob {
  std::string id;           // the scheduler's
  std::vector<int> shards;  // it was to measure, from 1
  bool operator==(const SubmittedJob&) const = default;
};

struct ClusterPlan {
  std::string scheduler;  // "slurm"
  int shards = 0;
  std::string program;               // of the tasks, a whole path
  std::vector<std::string> words;    // of the run, without "run": suite and options
  std::vector<std::string> options;  // the scheduler's own, as given
  std::string store, local;          // EVALRUN_CLUSTER_STORE, EVALRUN_CLUSTER_LOCAL; "" = default
  std::vector<SubmittedJob> jobs;    // in the order of their submission
  bool operator==(const ClusterPlan&) const = default;
};

class ClusterFolder {
 public:
  explicit ClusterFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string plan_file() const { return path_ + "/cluster.json"; }
  std::string script() const { return path_ + "/evalrun.sbatch"; }
  std::string log(int shard) const;
  std::string database(int shard, int shards) const;

  // With its rooms. Throws usage_error where a run is there already, data_error where nothing can
  // be written.
  void create(const ClusterPlan& plan) const;
  void save(const ClusterPlan& plan) const;
  // Throws data_error: no such run, a broken file (with the field).
  ClusterPlan load() const;

 private:
  std::string path_;
};

}  // namespace evalrun::runners
