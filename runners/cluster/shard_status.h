// What the process that measures a shard last said of itself: a small file beside the copy of its
// database. Whoever follows a job reads these instead of databases that are being written.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace evalrun::runners {

struct ShardStatus {
  std::string shard;  // "3/8"; "" = the run is not divided
  // "preparing" (models, warm-up), "measuring", "stopped" (told to end, or out of time), "failed"
  // (by an error, of which `message` or the log says more) or "complete".
  std::string state = "preparing";
  std::string message;
  std::string host, job;  // `job`: the scheduler's name for it, "" = none
  int planned = 0;        // generations of the shard; 0 = not known yet
  int stored = 0;         // of them
  int measured = 0;       // of these, by this process
  int failed = 0;         // of these
  double seconds = 0;     // that this process has measured
  int64_t updated_unix_s = 0;
  bool operator==(const ShardStatus&) const = default;
  bool complete() const { return state == "complete"; }
};

// "FILE.db" -> "FILE.status.json".
std::string status_path(const std::string& database);
// Whole or not at all. Throws data_error.
void write_status(const std::string& path, const ShardStatus& status);
// nullopt where there is no such file. Throws data_error for one that is broken.
std::optional<ShardStatus> read_status(const std::string& path);

}  // namespace evalrun::runners
