#include "runners/cli/gate/gate_run.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "engine/session.h"
#include "results/queries.h"
#include "runners/cli/gate/baseline_sessions.h"
#include "runners/cli/gate/gate_environment.h"
#include "runners/cli/gate/gate_history.h"
#include "runners/plan/conversation.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;

std::string draw_nonce() {
  static int count = 0;
  return fmt::format("{:x}.{:x}.{}", std::chrono::system_clock::now().time_since_epoch().count(),
                     ::getpid(), ++count);
}

// One run of its own that can be extended by further repeats.
class Measurement {
 public:
  Measurement(const GateRequest& request, results::ResultStore& store, base::Clock& clock,
              const runners::RunnerOptions& options)
      : plan_request_(request.plan),
        repeats_(request.plan.suite.repeats),
        store_(store),
        clock_(clock),
        options_(options),
        conversation_(*request.plan.target) {
    plan_request_.nonce = draw_nonce();
    plan_request_.suite.repeats = 0;
  }

  // Measures the suite's repeats (once more).
  int64_t extend() {
    plan_request_.suite.repeats += repeats_;
    runners::RunPlan plan = runners::make_plan(plan_request_);
    // More repeats of the same cells belong to the same run: its key stays that of the first look.
    if (key_.empty()) key_ = plan.run.key;
    plan.run.key = key_;
    runners::Runner runner(plan, conversation_, store_, clock_, options_);
    if (sessions_ == nullptr) {
      runners::measure_row_cost(plan_request_, plan, options_);
      row_cost_ = *plan.row_cost;
      sessions_ =
          std::make_unique<runners::ModelSessions>(runners::planned_session(plan_request_, plan));
    }
    *plan.row_cost = row_cost_;
    const runners::RunOutcome outcome =
        runner.run([&](const auto& model) -> engine::Session& { return sessions_->of(model); });
    if (outcome.status == runners::RunStatus::kInterrupted)
      throw base::Error(
          ExitCode::kInterrupted,
          fmt::format("interrupted: run {} is stored up to here, the check has no verdict",
                      outcome.run_id),
          "start the check again; it measures anew");
    return outcome.run_id;
  }

 private:
  runners::PlanRequest plan_request_;
  int repeats_;
  results::ResultStore& store_;
  base::Clock& clock_;
  const runners::RunnerOptions& options_;
  runners::Conversation conversation_;
  std::string key_;
  runners::MeasuredRowCost row_cost_;  // of the first look: methods shall not change in between
  std::unique_ptr<runners::ModelSessions> sessions_;  // their models are found again by each plan
};

// Where a verdict is red against one session, what others of its build say of it.
void ask_history(GateOutcome& outcome, const RunReference& baseline,
                 const reports::GateOptions& options) {
  if (outcome.code != ExitCode::kRegression) return;
  const HistoryVerdict history = judge_by_history(baseline, outcome.result, options);
  if (history.explains) outcome.code = ExitCode::kInconclusive;
  outcome.note = history.note;
}

// Looks at one growing run until there is a verdict or the budget is spent.
GateOutcome look(const GateRequest& request, const RunReference& baseline,
                 results::ResultStore& store, base::Clock& clock,
                 const runners::RunnerOptions& options) {
  reports::GateOptions gate = request.gate;
  gate.looks = 1 + request.max_extra_runs;
  Measurement measurement(request, store, clock, options);
  GateOutcome outcome;
  outcome.baseline_run = baseline.run_id;
  do {
    outcome.run_id = measurement.extend();
    gate.look = outcome.looks;
    outcome.result = reports::evaluate_gate({*baseline.store, baseline.sessions()},
                                            {store, {outcome.run_id}}, gate);
    ++outcome.looks;
  } while (outcome.result.more_repeats_help() && outcome.looks < gate.looks);
  outcome.code = outcome.result.code;
  return outcome;
}

}  // namespace

std::optional<RunReference> find_baseline(const std::string& name, const std::string& db) {
  const auto [file, wanted] = split_file(name, db);
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  RunReference found;
  found.store = open_results(file);
  const std::vector<int64_t> sessions = baseline_sessions(*found.store, wanted);
  if (sessions.empty()) return std::nullopt;
  found.run_id = sessions.front();
  found.more_sessions.assign(sessions.begin() + 1, sessions.end());
  return found;
}

GateOutcome missing_baseline(const std::string& name, const std::string& db) {
  GateOutcome outcome;
  outcome.baseline = name;
  outcome.code = ExitCode::kNoBaseline;
  outcome.result.code = ExitCode::kNoBaseline;
  outcome.result.summary = fmt::format("check: no baseline '{}' in {}", name, db);
  outcome.note = fmt::format(
      "save one: evalrun run ci && evalrun baseline save {}; a first run may say "
      "--allow-missing-baseline",
      name);
  return outcome;
}

GateOutcome judge_stored(const RunReference& baseline, const RunReference& run,
                         const reports::GateOptions& options) {
  GateOutcome outcome;
  outcome.result = reports::evaluate_gate({*baseline.store, baseline.sessions()},
                                          {*run.store, {run.run_id}}, options);
  outcome.code = outcome.result.code;
  outcome.baseline_run = baseline.run_id;
  outcome.run_id = run.run_id;
  outcome.looks = 1;
  ask_history(outcome, baseline, options);
  return outcome;
}

GateOutcome measure_and_judge(const GateRequest& request, const RunReference& baseline,
                              results::ResultStore& store, base::Clock& clock,
                              const runners::RunnerOptions& options) {
  GateOutcome outcome = look(request, baseline, store, clock, options);
  ask_history(outcome, baseline, request.gate);
  if (outcome.code == ExitCode::kRegression && request.confirm) {
    const GateOutcome second = look(request, baseline, store, clock, options);
    outcome.confirming_run = second.run_id;
    if (second.code == ExitCode::kRegression) {
      outcome.note = fmt::format("confirmed by a second run ({}){}{}", second.run_id,
                                 outcome.note.empty() ? "" : "; ", outcome.note);
    } else if (second.code == ExitCode::kCorrectness) {
      outcome.result = second.result;
      outcome.code = second.code;
      outcome.note = "";
    } else {
      outcome.code = ExitCode::kInconclusive;
      outcome.note = fmt::format("run {} looked slower, a second one ({}) did not confirm it ({})",
                                 outcome.run_id, second.run_id, second.result.summary);
    }
  }
  std::vector<MeasuredRun> measured;
  for (const int64_t run : {outcome.run_id, outcome.confirming_run})
    if (run != 0) measured.push_back({store, run, fmt::format("run {}", run)});
  judge_environment(measured, outcome);
  return outcome;
}

}  // namespace evalrun::cli
