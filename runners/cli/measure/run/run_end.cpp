#include "runners/cli/measure/run/run_end.h"

#include <spdlog/spdlog.h>

#include "engine/base/error.h"
#include "reports/figures/report.h"
#include "reports/gate/gate_output.h"
#include "reports/table/grouping.h"
#include "runners/cli/output.h"
#include "runners/cli/stored_row_times.h"

namespace evalrun::cli {

int tell_end(const runners::RunOutcome& outcome, const std::string& resume_command) {
  const int stored = outcome.stored_before + outcome.measured;
  if (outcome.failed > 0)
    spdlog::warn("{} generations failed; their rows say why (evalrun show)", outcome.failed);
  for (const std::string& problem : outcome.scoring_problems)
    spdlog::warn("not judged: {}", problem);
  for (const std::string& arm : outcome.few_common_tokens)
    spdlog::warn("draft model and target have few tokens in common: {}", arm);
  if (outcome.steal_share > 0.02)
    spdlog::warn("other guests of this machine took {:.1f} % of the processor time",
                 100 * outcome.steal_share);
  switch (outcome.status) {
    case runners::RunStatus::kInterrupted:
      spdlog::warn(
          "interrupted: {} of {} generations stored{}; resume with\n  {}", stored, outcome.planned,
          outcome.unscored > 0 ? fmt::format(", {} answers not judged yet", outcome.unscored) : "",
          resume_command);
      return static_cast<int>(base::ExitCode::kInterrupted);
    case runners::RunStatus::kOutOfTime:
      spdlog::warn("--max-time reached: {} of {} generations stored; go on with\n  {}", stored,
                   outcome.planned, resume_command);
      return static_cast<int>(base::ExitCode::kInconclusive);
    case runners::RunStatus::kComplete:
      break;
  }
  return static_cast<int>(outcome.failed > 0 ? base::ExitCode::kCorrectness : base::ExitCode::kOk);
}

std::string run_table(const results::ResultStore& store, const std::vector<int64_t>& runs,
                      const std::string& name, bool no_color) {
  const reports::Format format = reports::format_named(name).value();  // checked by the parser
  const reports::Layout layout{.width = report_width(), .colour = colour_wanted(no_color)};
  if (runs.size() > 1) {
    std::vector<reports::Report> reports;
    for (const int64_t run : runs) reports.push_back(reports::build_report(store, run));
    return reports::rendered(reports::group_by_run(reports), format, layout);
  }
  const reports::ReportOptions options{.row_times = stored_row_times};
  return reports::rendered(reports::build_report(store, runs.front(), options), format, layout);
}

bool tokens_as_promised(const results::ResultStore& store, int64_t run_id) {
  const reports::RunData run = reports::load_run(store, run_id);
  bool kept = true;
  for (const reports::GateCheck& check :
       reports::output_checks(store, run, reports::Faults::kLeaveOut)) {
    if (check.metric != "lossless" || check.outcome != reports::Outcome::kCorrectness) continue;
    spdlog::error("{}: {}", check.method, check.reason);
    kept = false;
  }
  return kept;
}

}  // namespace evalrun::cli
