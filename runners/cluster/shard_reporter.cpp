#include "runners/cluster/shard_reporter.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "runners/cluster/database_copy.h"

namespace evalrun::runners {
namespace {

constexpr double kStatusEveryS = 10;

int64_t unix_now() { return static_cast<int64_t>(std::time(nullptr)); }

std::string this_host() {
  // Several nodes may share a machine, and then a name.
  if (const char* node = std::getenv("SLURMD_NODENAME"); node != nullptr) return node;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

// "1234_3", as the scheduler's own commands take it.
std::string this_job() {
  const char* array = std::getenv("SLURM_ARRAY_JOB_ID");
  const char* task = std::getenv("SLURM_ARRAY_TASK_ID");
  if (array != nullptr && task != nullptr) return std::string(array) + "_" + task;
  const char* job = std::getenv("SLURM_JOB_ID");
  return job != nullptr ? job : "";
}

}  // namespace

ShardReporter::ShardReporter(ProgressSink& next, base::Clock& clock, Settings settings)
    : next_(next), clock_(clock), settings_(std::move(settings)) {
  if (restore_database(settings_.copy, settings_.database) == Restored::kCopied)
    spdlog::info("{} goes on from its copy {}", settings_.database, settings_.copy);
  status_.shard = settings_.shard;
  status_.host = this_host();
  status_.job = this_job();
  copied_ns_ = clock_.now_ns();
  told_ns_ = copied_ns_;
  status_.updated_unix_s = unix_now();
  try {
    write_status(status_path(settings_.copy), status_);
  } catch (const base::Error& e) {  // now, and not after hours
    throw base::data_error(settings_.copy, "", fmt::format("no copy can be kept: {}", e.message()),
                           "name a file in a folder that is there and that you may write to");
  }
}

ShardReporter::~ShardReporter() {
  if (finished_) return;
  status_.state = "failed";
  if (std::error_code ignored; std::filesystem::exists(settings_.database, ignored)) try_copy();
  try_status();
}

double ShardReporter::seconds_since(int64_t ns) const {
  return 1e-9 * static_cast<double>(clock_.now_ns() - ns);
}

void ShardReporter::begin(int pending, int already_stored) {
  start_ns_ = clock_.now_ns();
  status_.state = "measuring";
  status_.planned = ended_planned_ + pending + already_stored;
  status_.stored = ended_stored_ + already_stored;
  try_status();
  next_.begin(pending, already_stored);
}

void ShardReporter::generation_done(const std::string& arm, const std::string& prompt,
                                    bool failed) {
  ++status_.stored;
  ++status_.measured;
  status_.failed += failed ? 1 : 0;
  status_.seconds = ended_s_ + seconds_since(start_ns_);
  next_.generation_done(arm, prompt, failed);
  const bool told = settings_.stop && settings_.stop();
  if (told || seconds_since(copied_ns_) >= settings_.copy_every_s) try_copy();
  if (told || seconds_since(told_ns_) >= kStatusEveryS) try_status();
}

void ShardReporter::ended(const RunOutcome& outcome) {
  ended_planned_ += outcome.planned;
  ended_stored_ += outcome.stored_before + outcome.measured;
  if (start_ns_ != 0) ended_s_ = status_.seconds;
  status_.planned = ended_planned_;
  status_.stored = ended_stored_;
}

void ShardReporter::finish(const std::string& state, const std::string& message) {
  status_.state = state;
  status_.message = message;
  finished_ = true;  // or its error ends the run, and says so
  // The copy first: who reads "complete" may take it at once.
  copy_database(settings_.database, settings_.copy);
  status_.updated_unix_s = unix_now();
  write_status(status_path(settings_.copy), status_);
}

void ShardReporter::try_copy() {
  try {
    copy_database(settings_.database, settings_.copy);
    warned_ = false;
  } catch (const base::Error& e) {
    if (!warned_) spdlog::warn("{}", e.what());
    warned_ = true;
  }
  copied_ns_ = clock_.now_ns();
}

void ShardReporter::try_status() {
  told_ns_ = clock_.now_ns();
  status_.updated_unix_s = unix_now();
  try {
    write_status(status_path(settings_.copy), status_);
  } catch (const base::Error& e) {
    if (!warned_) spdlog::warn("{}", e.what());
    warned_ = true;
  }
}

}  // namespace evalrun::runners
