#include "runners/cli/gate/gate_drill.h"

#include <algorithm>

#include "runners/plan/planted_faults.h"

namespace evalrun::cli {
namespace {

constexpr const char* kBaseline = "self-test";

DrillOutcome run_drill(const Drill& drill, const GateRequest& undisturbed,
                       const std::shared_ptr<results::ResultStore>& store, base::Clock& clock,
                       const runners::RunnerOptions& options) {
  DrillOutcome outcome{drill, {}, 0};
  const int64_t begin = clock.now_ns();
  // The name decides, as it does for the command: one that nobody saved is the drill of that.
  const std::string name = drill.name == "missing-baseline" ? "never-saved" : kBaseline;
  if (const auto baseline = find_baseline(name, store->path())) {
    const GateRequest request =
        drill.fault.empty() ? undisturbed : with_fault(undisturbed, drill.fault);
    outcome.gate = measure_and_judge(request, *baseline, *store, clock, options);
  } else {
    outcome.gate = missing_baseline(name, store->path());
  }
  outcome.gate.baseline = name;
  outcome.seconds = static_cast<double>(clock.now_ns() - begin) * 1e-9;
  return outcome;
}

DrillOutcome run_in_lock_step(const Drill& drill, const DrillMeans& means) {
  DrillOutcome outcome{drill, {}, 0};
  const int64_t begin = means.clock.now_ns();
  AgainstRequest request = means.against;
  request.fault = drill.fault;
  outcome.gate = check_against(request);
  outcome.seconds = static_cast<double>(means.clock.now_ns() - begin) * 1e-9;
  return outcome;
}

}  // namespace

std::vector<reports::Cause> speed_causes_of(const reports::GateResult& result) {
  std::vector<reports::Cause> causes;
  for (const reports::GateCheck& v : result.checks)
    if (v.metric == "speed" || v.metric == "tok_s")
      for (const reports::Cause cause : v.causes)
        if (std::find(causes.begin(), causes.end(), cause) == causes.end()) causes.push_back(cause);
  return causes;
}

bool DrillOutcome::passed() const {
  if (gate.code != drill.expected) return false;
  const std::vector<reports::Cause> causes = speed_causes_of(gate.result);
  return !drill.cause || std::find(causes.begin(), causes.end(), *drill.cause) != causes.end();
}

std::vector<Drill> gate_drills() {
  using base::ExitCode;
  using reports::Cause;
  return {{"unchanged", "", ExitCode::kOk, {}, true},
          {"slow:5%", "slow:5%", ExitCode::kRegression, Cause::kMethodSlower, true},
          {"ar-slow:5%", "ar-slow:5%", ExitCode::kRegression, Cause::kArSlower, true},
          {"all-slow:5%", "all-slow:5%", ExitCode::kRegression, Cause::kBothSlower, true},
          {"wrong-accept", "wrong-accept", ExitCode::kCorrectness},
          {"miscount", "miscount", ExitCode::kCorrectness},
          {"missing-baseline", "", ExitCode::kNoBaseline}};
}

GateRequest with_fault(GateRequest request, const std::string& fault) {
  request.plan.faults = runners::planted_faults(request.plan.suite, fault);
  request.plan.label = "check with " + fault;
  request.gate.faults = reports::Faults::kInclude;
  return request;
}

RunReference measure_baseline(const GateRequest& request,
                              const std::shared_ptr<results::ResultStore>& store,
                              base::Clock& clock, const runners::RunnerOptions& options) {
  runners::PlanRequest plan = request.plan;
  plan.label = "baseline";
  const runners::RunOutcome run = runners::run_suite(plan, *store, clock, options);
  if (run.status != runners::RunStatus::kComplete)
    throw base::Error(base::ExitCode::kInterrupted, "interrupted: the self-test has no baseline");
  store->save_baseline(kBaseline, run.run_id, "undisturbed run of the self-test");
  return {store, run.run_id};
}

std::vector<DrillOutcome> run_drills(const DrillMeans& means,
                                     const std::function<void(const DrillOutcome&)>& done) {
  std::vector<DrillOutcome> outcomes;
  const auto add = [&](DrillOutcome outcome) {
    outcomes.push_back(std::move(outcome));
    done(outcomes.back());
  };
  for (const Drill& drill : gate_drills())
    if (drill.lock_step) add(run_in_lock_step(drill, means));
  const auto store = std::make_shared<results::ResultStore>(means.database);
  GateRequest request = means.request();
  request.plan.suite.repeats = 1;  // equality comes before any time is looked at
  measure_baseline(request, store, means.clock, means.options);
  for (const Drill& drill : gate_drills())
    if (!drill.lock_step) add(run_drill(drill, request, store, means.clock, means.options));
  return outcomes;
}

}  // namespace evalrun::cli
