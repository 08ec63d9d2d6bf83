// What every command that measures sets up: clock, progress on standard error, the stop (Ctrl-C)
// and the file of row costs.
#pragma once
#include "engine/base/clock.h"
#include "runners/cli/cli.h"
#include "runners/measure/interrupt.h"
#include "runners/measure/progress.h"
#include "runners/measure/runner.h"

namespace evalrun::cli {

class Instruments {
 public:
  explicit Instruments(const GlobalOptions& global);
  base::Clock& clock() { return clock_; }
  // With progress, stop and row costs set; a command adds what is its own.
  runners::RunnerOptions& options() { return options_; }
  // Silent with --quiet.
  runners::ProgressSink& progress() { return *options_.progress; }

 private:
  base::SteadyClock clock_;
  runners::ConsoleProgress console_;
  runners::ProgressSink quiet_;
  runners::InterruptGuard guard_;
  runners::RunnerOptions options_;
};

}  // namespace evalrun::cli
