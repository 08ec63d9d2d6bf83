#include "runners/cluster/time_left.h"

#include <algorithm>
#include <cmath>

namespace evalrun::runners {

JobProgress progress_of(const std::vector<ShardProgress>& shards) {
  JobProgress job;
  job.shards = static_cast<int>(shards.size());
  double seconds = 0;  // of all that was measured
  int measured = 0, known = 0;
  for (const ShardProgress& shard : shards) {
    job.running += shard.running ? 1 : 0;
    if (!shard.status) continue;
    job.complete += shard.status->complete() ? 1 : 0;
    if (shard.status->planned == 0) continue;
    ++known;
    job.planned += shard.status->planned;
    job.stored += shard.status->stored;
    seconds += shard.status->seconds;
    measured += shard.status->measured;
  }
  const double usual = known > 0 ? static_cast<double>(job.planned) / known : 0;
  job.estimated = known > 0 && known < job.shards;
  if (job.estimated) job.planned += static_cast<int>(std::lround(usual * (job.shards - known)));
  if (measured == 0 || seconds <= 0 || job.running == 0) return job;

  // When each place is free. Those that wait take the first one.
  const double pace = seconds / measured;
  std::vector<double> places, waiting;
  for (const ShardProgress& shard : shards) {
    const bool has_plan = shard.status && shard.status->planned > 0;
    if (shard.status && shard.status->complete()) continue;
    const double left = has_plan ? shard.status->planned - shard.status->stored : usual;
    const bool has_pace = shard.status && shard.status->measured > 0;
    const double own = has_pace ? shard.status->seconds / shard.status->measured : pace;
    if (shard.running)
      places.push_back(left * own);
    else
      waiting.push_back(left * pace);
  }
  if (places.empty()) return job;  // all that run are complete: they are on their way out
  std::sort(waiting.rbegin(), waiting.rend());
  for (const double takes : waiting) *std::min_element(places.begin(), places.end()) += takes;
  job.seconds_left = *std::max_element(places.begin(), places.end());
  return job;
}

}  // namespace evalrun::runners
