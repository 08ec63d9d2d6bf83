#include "reports/gate/session_spread.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "reports/data/matching.h"
#include "reports/data/sessions.h"
#include "reports/gate/gate_yardstick.h"
#include "results/queries.h"

namespace evalrun::reports {

std::vector<int64_t> sessions_like(const results::ResultStore& store, int64_t run_id) {
  const RunData first = load_run(store, run_id);
  std::vector<int64_t> sessions;
  for (const results::ListedRun& listed : results::list_runs(store)) {
    const results::RunRow& run = listed.run;
    const bool fit = !run.finished.empty() && listed.fault.empty() && listed.counts.failed == 0;
    if (run.id == run_id || (fit && run.commit == first.run.commit &&
                             sessions_of_one_thing(first, load_run(store, run.id))))
      sessions.push_back(run.id);
  }
  return sessions;
}

std::optional<double> session_spread(const results::ResultStore& store,
                                     const std::vector<int64_t>& sessions,
                                     const GateOptions& options) {
  if (sessions.size() < 2) return std::nullopt;
  std::vector<RunData> runs;
  for (const int64_t run : sessions) runs.push_back(load_run(store, run));
  std::optional<double> largest;
  for (const JudgedArm& arm : yardsticks_of(runs.front(), options).arms) {
    std::vector<double> means;
    for (const RunData& run : runs) {
      const MatchedArm m = match_arm(run, run, arm.label, "", arm.yardstick);
      const std::vector<double> logs = fastest_log_ratios(values_of(m.a.prompts));
      if (!logs.empty()) means.push_back(base::mean(logs));
    }
    if (means.size() == runs.size())
      largest = std::max(largest.value_or(0), base::sample_sd(means));
  }
  return largest;
}

double session_change_p(double beyond, double spread, int history) {
  EVALRUN_CHECK(history >= 2, "{} sessions", history);
  if (spread == 0) return beyond > 0 ? 0.0 : 1.0;
  return base::student_t_cdf(-beyond / (spread * std::sqrt(2.0)), history - 1);
}

double detectable_slowdown(double spread, int baseline_sessions, int history, double margin,
                           double alpha) {
  EVALRUN_CHECK(baseline_sessions >= 1 && history >= 2, "{} and {} sessions", baseline_sessions,
                history);
  constexpr double kPower = 0.8;
  const double dof = history - 1;
  const double standard_error = spread * std::sqrt(1.0 / baseline_sessions + 1);
  const double beyond =
      (base::student_t_quantile(1 - alpha, dof) + base::student_t_quantile(kPower, dof)) *
      standard_error;
  return 1 - (1 - margin) * std::exp(-beyond);
}

}  // namespace evalrun::reports
