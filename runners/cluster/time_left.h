// When shards that are measured side by side will be done.
#pragma once
#include <optional>
#include <vector>

#include "runners/cluster/shard_status.h"

namespace evalrun::runners {

struct ShardProgress {
  std::optional<ShardStatus> status;  // none: nothing is known of it
  bool running = false;               // has a machine now
};

struct JobProgress {
  int shards = 0, complete = 0, running = 0;
  int planned = 0, stored = 0;  // generations; of shards that said nothing yet, as much as the mean
  bool estimated = false;       // `planned` holds such shards
  // Of the generations that are left. Running shards go on at their own pace, others wait until one
  // of as many places as are in use now is free, and then take as long as the mean. Absent while
  // nothing is measured, or nothing runs.
  std::optional<double> seconds_left;
};

JobProgress progress_of(const std::vector<ShardProgress>& shards);

}  // namespace evalrun::runners
