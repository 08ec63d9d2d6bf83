// What became of the shards: the scheduler's word and the shards' own, put together.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runners/cluster/cluster_folder.h"
#include "runners/cluster/shard_status.h"
#include "runners/cluster/slurm.h"
#include "runners/cluster/time_left.h"

namespace evalrun::runners {

enum class ShardPhase {
  kComplete,  // its copy holds all of it
  kWaiting,   // for a machine, for the first time or again
  kRunning,
  kFailed,  // its task ended, and it is not complete: `why`
  kLost,    // the scheduler does not know its task any more, and it is not complete
};
const char* to_string(ShardPhase phase);

struct ShardView {
  int shard = 0;
  ShardPhase phase = ShardPhase::kLost;
  TaskState task;
  std::optional<ShardStatus> status;
  std::string why;  // it failed: by the shard's own word, the scheduler's, or the end of its log
  bool missing() const { return phase == ShardPhase::kFailed || phase == ShardPhase::kLost; }
};

// In the order of the shards. Throws data_error for a broken status file.
std::vector<ShardView> shard_views(const ClusterFolder& folder, const ClusterPlan& plan,
                                   const std::map<int, TaskState>& tasks);
JobProgress progress_of(const std::vector<ShardView>& views);
// Those that nobody measures or is going to measure.
std::vector<int> missing_shards(const std::vector<ShardView>& views);

// "5 of 8 shards complete, 2 running, 1 waiting; 412 of 640 generations (64 %), about 12m left".
std::string progress_line(const std::vector<ShardView>& views);

}  // namespace evalrun::runners
