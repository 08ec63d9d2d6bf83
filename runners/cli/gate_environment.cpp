#include "runners/cli/gate_environment.h"

#include "reports/conditions.h"

namespace evalrun::cli {

void judge_environment(const results::ResultStore& store, GateOutcome& outcome) {
  const bool about_speed =
      outcome.code == base::ExitCode::kRegression || outcome.code == base::ExitCode::kInconclusive;
  for (const int64_t run : {outcome.run_id, outcome.confirming_run}) {
    if (run == 0) continue;
    const reports::Conditions conditions = reports::read_conditions(store, run);
    if (conditions.generations == 0) continue;
    const bool may_flip = about_speed && !conditions.throttling.empty();
    reports::Verdict verdict;
    verdict.metric = "environment";
    verdict.outcome = may_flip ? reports::Outcome::kInconclusive : reports::Outcome::kOk;
    verdict.reason = fmt::format("run {}: {}", run, reports::conditions_text(conditions));
    verdict.n = conditions.generations;
    outcome.result.verdicts.push_back(verdict);
    if (!may_flip) continue;
    outcome.code = base::ExitCode::kEnvironment;
    outcome.note =
        fmt::format("the clock was not the same for all arms ({}): measure again when it is",
                    conditions.throttling.front());
  }
}

}  // namespace evalrun::cli
