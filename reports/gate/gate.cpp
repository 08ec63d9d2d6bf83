#include "reports/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "reports/data/sessions.h"
#include "reports/format.h"
#include "reports/gate/equal_repeats.h"
#include "reports/gate/gate_comparable.h"
#include "reports/gate/gate_lock_step.h"
#include "reports/gate/gate_output.h"
#include "reports/gate/gate_quality.h"
#include "reports/gate/gate_servers.h"
#include "reports/gate/gate_speed.h"
#include "reports/gate/gate_yardstick.h"

namespace evalrun::reports {

namespace {

base::ExitCode exit_code(Outcome o) {
  switch (o) {
    case Outcome::kCorrectness:
      return base::ExitCode::kCorrectness;
    case Outcome::kIncompatible:
      return base::ExitCode::kNoBaseline;
    case Outcome::kRegression:
      return base::ExitCode::kRegression;
    case Outcome::kInconclusive:
      return base::ExitCode::kInconclusive;
    default:
      return base::ExitCode::kOk;
  }
}

// A run and the store that holds it.
struct RunInStore {
  const results::ResultStore& store;
  const RunData& data;
};

void append(std::vector<GateCheck>& to, std::vector<GateCheck> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

bool comparable(const std::vector<GateCheck>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const GateCheck& v) { return v.outcome == Outcome::kIncompatible; });
}

// Everything but speed; nothing is compared with an incompatible baseline.
std::vector<GateCheck> all_but_speed(const RunInStore& base, const RunInStore& current,
                                     const GateOptions& options) {
  std::vector<GateCheck> checks = output_checks(current.store, current.data, options.faults);
  append(checks, comparable_checks(base.data, current.data, options));
  if (!comparable(checks)) return checks;
  append(checks, complete_checks(base.data, current.data));
  append(checks, equality_checks(base.data, current.data));
  append(checks, server_checks(base.store, base.data, current.store, current.data, options));
  append(checks, quality_checks(base.store, base.data, current.store, current.data, options));
  return checks;
}

// The worst verdict first; it gives the exit code and the summary.
void conclude(GateResult& result, const GateOptions& options) {
  std::stable_sort(result.checks.begin(), result.checks.end(),
                   [](const GateCheck& x, const GateCheck& y) { return x.outcome < y.outcome; });
  const GateCheck& worst = result.checks.front();
  result.code = exit_code(worst.outcome);
  if (worst.outcome == Outcome::kOk)
    result.summary = fmt::format("check: ok - {} checks passed, no speedup{} fell by more than {}",
                                 result.checks.size(), options.lock_step ? " and no arm" : "",
                                 percent(options.max_regression, 1));
  else
    result.summary = fmt::format("check: {} - {}{}{}", to_string(worst.outcome), worst.method,
                                 worst.method.empty() ? "" : ": ", worst.reason);
}

std::vector<RunData> load_sessions(const Sessions& side, Faults faults) {
  std::vector<RunData> runs;
  for (const int64_t run : side.runs) {
    runs.push_back(load_run(side.store, run, faults));
    if (runs.size() > 1) require_sessions_of_one_thing(runs[0], runs.back(), side.store.path());
  }
  EVALRUN_CHECK(!runs.empty(), "a side without sessions");
  return runs;
}

std::vector<LockStepRun> with_steps(const results::ResultStore& store,
                                    const std::vector<RunData>& runs, Faults faults) {
  std::vector<LockStepRun> all;
  for (const RunData& run : runs)
    all.push_back({run, results::step_times(store, run.run.id, faults == Faults::kInclude)});
  return all;
}

}  // namespace

bool GateResult::more_repeats_help() const {
  return code == base::ExitCode::kInconclusive &&
         std::any_of(checks.begin(), checks.end(), [](const GateCheck& v) {
           return (v.metric == "speed" || v.metric == "tok_s") &&
                  v.outcome == Outcome::kInconclusive;
         });
}

GateResult evaluate_gate(const Sessions& base, const Sessions& current,
                         const GateOptions& options) {
  std::vector<RunData> bases = load_sessions(base, Faults::kLeaveOut);
  std::vector<RunData> news = load_sessions(current, options.faults);
  const RunInStore first_base = {base.store, bases[0]};
  GateResult result;
  result.base = bases[0].run;
  result.current = news[0].run;
  for (size_t i = 1; i < news.size(); ++i)
    for (GateCheck& v : all_but_speed(first_base, {current.store, news[i]}, options)) {
      if (v.outcome == Outcome::kOk) continue;
      v.reason = fmt::format("session {}: {}", i + 1, v.reason);
      result.checks.push_back(std::move(v));
    }
  std::vector<GateCheck> first = all_but_speed(first_base, {current.store, news[0]}, options);
  const bool test_speed = comparable(first);
  append(result.checks, std::move(first));
  if (test_speed) {
    result.warnings = yardstick_warnings(bases[0], news[0], options);
    std::vector<StoredRunData> all;
    for (RunData& run : bases) all.push_back({&base.store, &run});
    for (RunData& run : news) all.push_back({&current.store, &run, options.faults});
    equalise_repeats(all);
    SpeedChecks speed =
        options.lock_step
            ? lock_step_checks(with_steps(base.store, bases, Faults::kLeaveOut),
                               with_steps(current.store, news, options.faults), options)
            : speed_checks(bases, news, options);
    result.noise_floor = speed.noise_floor;
    result.margin = speed.margin;
    append(result.checks, std::move(speed.checks));
  }
  conclude(result, options);
  return result;
}

GateResult evaluate_gate(const results::ResultStore& base_store, int64_t base_run,
                         const results::ResultStore& new_store, int64_t new_run,
                         const GateOptions& options) {
  return evaluate_gate({base_store, {base_run}}, {new_store, {new_run}}, options);
}

}  // namespace evalrun::reports
