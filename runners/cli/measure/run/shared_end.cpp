#include "runners/cli/measure/run/shared_end.h"

#include <spdlog/spdlog.h>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::cli {

int tell_shared(const runners::SharedOutcome& outcome, const std::string& database,
                const std::string& resume_command) {
  for (const int rank : outcome.gone)
    spdlog::warn("process {} has ended early; what it had in hand was given to others", rank + 1);
  for (const std::string& problem : outcome.own.scoring_problems)
    spdlog::warn("not judged: {}", problem);
  if (outcome.run_id) {
    if (outcome.stolen > 0)
      spdlog::info("{} went to a process that was done with its own part",
                   base::plural(outcome.stolen, "prompt or group"));
    spdlog::info("run {} in {}", *outcome.run_id, database);
    return static_cast<int>(base::ExitCode::kOk);
  }
  spdlog::warn(
      "{} of {} prompts are measured, in {}.parts; this goes on, with any number of processes:\n  "
      "{}",
      outcome.prompts - outcome.missing, outcome.prompts, database, resume_command);
  return static_cast<int>(outcome.own.status == runners::RunStatus::kOutOfTime
                              ? base::ExitCode::kInconclusive
                              : base::ExitCode::kInterrupted);
}

}  // namespace evalrun::cli
