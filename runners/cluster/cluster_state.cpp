#include "runners/cluster/cluster_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/units.h"

namespace evalrun::runners {
namespace {

// The last line of a task's log that holds an error, or the last one at all.
std::string last_words(const std::string& log) {
  std::error_code ignored;
  if (!std::filesystem::exists(log, ignored)) return "";
  std::string last, error;
  for (const std::string& line : base::split(base::read_file(log), '\n')) {
    const std::string text(base::trim(line));
    if (text.empty()) continue;
    last = text;
    if (text.find("error: ") != std::string::npos) error = text;
  }
  return error.empty() ? last : error;
}

std::string why_it_failed(const ClusterFolder& folder, const ShardView& view) {
  std::string why = view.task.name;
  if (!view.task.reason.empty()) why += (why.empty() ? "" : ", ") + view.task.reason;
  if (view.status && view.status->state == "failed" && !view.status->message.empty())
    return view.status->message;
  const std::string words = last_words(folder.log(view.shard));
  if (!words.empty()) why += (why.empty() ? "" : ": ") + words;
  return why.empty() ? "its task left neither a log nor a status" : why;
}

ShardPhase phase_of_shard(const ShardView& view) {
  if (view.status && view.status->complete()) return ShardPhase::kComplete;
  switch (view.task.phase) {
    case TaskPhase::kWaiting:
      return ShardPhase::kWaiting;
    case TaskPhase::kRunning:
      return ShardPhase::kRunning;
    case TaskPhase::kEnded:
    case TaskPhase::kFailed:
      return ShardPhase::kFailed;
    case TaskPhase::kUnknown:
      break;
  }
  return ShardPhase::kLost;
}

}  // namespace

const char* to_string(ShardPhase phase) {
  switch (phase) {
    case ShardPhase::kComplete:
      return "complete";
    case ShardPhase::kWaiting:
      return "waiting";
    case ShardPhase::kRunning:
      return "running";
    case ShardPhase::kFailed:
      return "failed";
    case ShardPhase::kLost:
      break;
  }
  return "lost";
}

std::vector<ShardView> shard_views(const ClusterFolder& folder, const ClusterPlan& plan,
                                   const std::map<int, TaskState>& tasks) {
  std::vector<ShardView> views;
  for (int shard = 1; shard <= plan.shards; ++shard) {
    ShardView view;
    view.shard = shard;
    if (const auto task = tasks.find(shard); task != tasks.end()) view.task = task->second;
    view.status = read_status(status_path(folder.database(shard, plan.shards)));
    view.phase = phase_of_shard(view);
    if (view.missing()) view.why = why_it_failed(folder, view);
    views.push_back(std::move(view));
  }
  return views;
}

JobProgress progress_of(const std::vector<ShardView>& views) {
  std::vector<ShardProgress> shards;
  for (const ShardView& view : views)
    shards.push_back({view.status, view.phase == ShardPhase::kRunning});
  return progress_of(shards);
}

std::vector<int> missing_shards(const std::vector<ShardView>& views) {
  std::vector<int> missing;
  for (const ShardView& view : views)
    if (view.missing()) missing.push_back(view.shard);
  return missing;
}

std::string progress_line(const std::vector<ShardView>& views) {
  const JobProgress job = progress_of(views);
  std::string line = fmt::format("{} of {} shards complete", job.complete, job.shards);
  for (const ShardPhase phase :
       {ShardPhase::kRunning, ShardPhase::kWaiting, ShardPhase::kFailed, ShardPhase::kLost}) {
    const auto n = std::count_if(views.begin(), views.end(),
                                 [&](const ShardView& v) { return v.phase == phase; });
    if (n > 0) line += fmt::format(", {} {}", n, to_string(phase));
  }
  if (job.planned > 0)
    line +=
        fmt::format("; {} of {}{} generations ({:.0f} %)", job.stored,
                    job.estimated ? "about " : "", job.planned, 100.0 * job.stored / job.planned);
  if (job.seconds_left)
    line += fmt::format(", about {} left", base::format_duration(std::round(*job.seconds_left)));
  return line;
}

}  // namespace evalrun::runners
