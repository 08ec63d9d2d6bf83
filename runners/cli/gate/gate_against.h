// `evalrun check --against PROGRAM`: this build against another one, both measured now, in
// processes that take turns (measurement C.6, comparison A: no drift between two days is in it).
#pragma once
#include <string>
#include <vector>

#include "runners/cli/gate/gate_run.h"

namespace evalrun::cli {

struct AgainstRequest {
  std::string program;                 // the other build's evalrun
  std::vector<std::string> arguments;  // of `run` after its name, the same for both builds
  reports::GateOptions gate;           // `looks` is set from max_extra_runs
  int sessions = 3;                    // processes of each build, per look
  int max_extra_runs = 2;              // further looks while inconclusive
};

// Measures in turns (AB BA AB ...), judges over all sessions. Databases lie in a temporary folder
// that is removed at the end. Throws usage_error for a program that cannot be started, data_error
// with its last line where one fails, kInterrupted.
GateOutcome check_against(const AgainstRequest& request);

}  // namespace evalrun::cli
