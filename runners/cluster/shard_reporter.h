// Keeps the copy of a run's database and its status file (runners/cluster/shard_status.h) up to
// date while the run measures. Both are written between generations, when no time is taken.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/clock.h"
#include "runners/cluster/shard_status.h"
#include "runners/measure/progress.h"
#include "runners/measure/runner.h"

namespace evalrun::runners {

class ShardReporter final : public ProgressSink {
 public:
  struct Settings {
    std::string database, copy;
    std::string shard;  // "3/8", "" = not divided
    double copy_every_s = 300;
    std::function<bool()> stop =
        {};  // told to end: a copy after each generation, as a kill may follow
  };
  // Restores the database from its copy (restore_database) before anyone opens it. Throws
  // data_error where nothing can be written beside the copy.
  ShardReporter(ProgressSink& next, base::Clock& clock, Settings settings);
  // Without finish(), an error ended the run: what is stored is copied all the same.
  ~ShardReporter() override;
  ShardReporter(const ShardReporter&) = delete;
  ShardReporter& operator=(const ShardReporter&) = delete;

  // A run of the command is over, the last of them or not.
  void ended(const RunOutcome& outcome);
  // The last copy and status. Throws data_error where the copy cannot be written: then nobody else
  // learns of what was measured.
  void finish(const std::string& state, const std::string& message = "");

  void left_out(const std::string& method) override { next_.left_out(method); }
  void hopeless(const std::string& why) override { next_.hopeless(why); }
  void warming_up(const std::string& arm) override { next_.warming_up(arm); }
  void begin(int pending, int already_stored) override;
  void generation_done(const std::string& arm, const std::string& prompt, bool failed) override;
  void scoring(int done, int total, double elapsed_s, double left_s) override {
    next_.scoring(done, total, elapsed_s, left_s);
  }
  void working(const std::string& what, double share_done, double elapsed_s) override {
    next_.working(what, share_done, elapsed_s);
  }
  void end() override { next_.end(); }

 private:
  double seconds_since(int64_t ns) const;
  // Whether they could be written; where not, a warning says so once, and the run goes on.
  void try_copy();
  void try_status();

  ProgressSink& next_;
  base::Clock& clock_;
  Settings settings_;
  ShardStatus status_;
  int ended_planned_ = 0, ended_stored_ = 0;  // of earlier runs of the command
  int64_t start_ns_ = 0, copied_ns_ = 0, told_ns_ = 0;
  double ended_s_ = 0;
  bool warned_ = false, finished_ = false;
};

}  // namespace evalrun::runners
