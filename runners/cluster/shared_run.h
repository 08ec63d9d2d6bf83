// One run by several processes: MPI ranks, or one for each device of this machine. Rank 0 hands out
// prompts (runners/cluster/prompt_sources.h) and measures itself; each process writes a database of
// its own; rank 0 puts them together at the end.
//
// The databases lie in FILE.parts/PLAN/RANK.db, FILE being --db. They are what a run that was cut
// off leaves behind: the same command, with any number of processes, measures what no database
// holds. A prompt counts as measured where one process measured all of it, so that methods are
// compared on one machine; what a dead process has of a prompt that another one then measured is
// dropped. When the plan is complete its run is copied into FILE, and the parts are removed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "runners/cluster/messages.h"
#include "runners/measure/runner.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

struct SharedOutcome {
  RunOutcome own;  // of this process; planned is what it took
  // Rank 0 alone:
  std::optional<int64_t> run_id;  // in FILE; absent: not complete
  int prompts = 0, missing = 0;   // of the plan; and of them those that are not measured
  int stolen = 0;                 // units that went to another process than at first
  std::vector<int> gone;          // ranks that ended without a word
  bool stopped = false;           // some process was told to end, or ran out of time
};

// `option` is the one that asked for it, for errors. Throws as run_suite(), and usage_error for a
// plan that cannot be cut (check_can_be_cut), for endpoints, and where processes have other plans.
SharedOutcome run_shared(Messages& messages, const PlanRequest& request,
                         const std::string& database, base::Clock& clock,
                         const RunnerOptions& options, const std::string& option);

}  // namespace evalrun::runners
