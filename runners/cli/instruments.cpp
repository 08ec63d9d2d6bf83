#include "runners/cli/instruments.h"

#include <unistd.h>

#include "runners/machine/row_cost_cache.h"

namespace evalrun::cli {

Instruments::Instruments(const GlobalOptions& global)
    : console_(stderr, ::isatty(STDERR_FILENO) != 0, clock_) {
  options_.stop = runners::InterruptGuard::requested;
  options_.row_cost_seconds = runners::kRowCostSeconds;
  options_.row_cost_cache = runners::row_cost_cache_path();
  options_.progress = &console_;
  if (global.verbosity < 0) options_.progress = &quiet_;
}

}  // namespace evalrun::cli
