// `evalrun check --against PROGRAM`: this build against another one, both measured now
// (docs/gate.md, "Two builds in lock step"). No drift between two days is in it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runners/cli/gate/gate_run.h"

namespace evalrun::cli {

struct AgainstRequest {
  std::string program;                 // the other build's evalrun
  std::vector<std::string> arguments;  // of `run` after its name, the same for both builds
  std::vector<std::string> lock_step_arguments;  // more of them in lock step
  reports::GateOptions gate;                     // `looks` and `lock_step` are set
  std::optional<int> sessions;                   // processes of each build, per look
  std::optional<int> max_extra_runs;             // further looks while inconclusive
  std::string fault;                             // planted in this build: --self-test
  double patience_s = 600;                       // for one turn of a child
};

// What is measured where the command line does not say: more, shorter sessions in lock step.
struct AgainstBudget {
  int sessions, extra_runs;
};
inline constexpr AgainstBudget kLockStepBudget{6, 5}, kInTurnsBudget{3, 2};

// In lock step, both builds loaded at once. Where the other build cannot do that (it is older): in
// sessions that take turns, AB BA AB, each a process that measures everything. Databases lie in a
// temporary folder that is removed at the end. Throws usage_error for a program that cannot be
// started, data_error with its last line where one fails, is killed or hangs, kInterrupted.
GateOutcome check_against(const AgainstRequest& request);

// The first way alone; nullopt where the other build cannot do it.
std::optional<GateOutcome> check_in_lock_step(const AgainstRequest& request);

// This build's program.
std::string own_program();

}  // namespace evalrun::cli
