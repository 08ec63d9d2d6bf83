#include "runners/cli/gate/gate_environment.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/figures/conditions.h"

namespace evalrun::cli {
namespace {

// Why the machine may have made a verdict on speed; "" where it did not.
std::string unfit(const reports::Conditions& conditions) {
  if (conditions.steal_share > kMostStolen && conditions.steal_ns >= kFewestStolenNs)
    return fmt::format(
        "other guests of this machine took {:.0f} % of its processor time while measuring: measure "
        "again on a quieter one",
        100 * conditions.steal_share);
  if (!conditions.throttling.empty())
    return fmt::format("the clock was not the same for all arms ({}): measure again when it is",
                       conditions.throttling.front());
  return "";
}

}  // namespace

void judge_environment(const std::vector<MeasuredRun>& runs, GateOutcome& outcome, size_t enough) {
  size_t unfit_runs = 0;
  const bool about_speed =
      outcome.code == base::ExitCode::kRegression || outcome.code == base::ExitCode::kInconclusive;
  for (const MeasuredRun& run : runs) {
    const reports::Conditions conditions = reports::read_conditions(run.store, run.id);
    if (conditions.generations == 0) continue;
    outcome.steal_share = std::max(outcome.steal_share, conditions.steal_share);
    const std::string reason = about_speed ? unfit(conditions) : "";
    reports::GateCheck check;
    check.metric = "environment";
    check.outcome = reason.empty() ? reports::Outcome::kOk : reports::Outcome::kInconclusive;
    check.reason = fmt::format("{}: {}", run.name, reports::conditions_text(conditions));
    check.n = conditions.generations;
    outcome.result.checks.push_back(check);
    if (reason.empty() || ++unfit_runs < enough) continue;
    outcome.code = base::ExitCode::kEnvironment;
    outcome.note = reason;
  }
}

}  // namespace evalrun::cli
