#include "runners/cli/gate_drill.h"

#include "methods/faults.h"
#include "methods/method.h"

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
    GateRequest request = drill.fault.empty() ? undisturbed : with_fault(undisturbed, drill.fault);
    // Equality needs no repeats: these verdicts come before any time is looked at.
    if (drill.expected == base::ExitCode::kCorrectness) request.plan.suite.repeats = 1;
    outcome.gate = measure_and_judge(request, *baseline, *store, clock, options);
  } else {
    outcome.gate = missing_baseline(name, store->path());
  }
  outcome.gate.baseline = name;
  outcome.seconds = static_cast<double>(clock.now_ns() - begin) * 1e-9;
  return outcome;
}

}  // namespace

std::vector<Drill> gate_drills() {
  using base::ExitCode;
  return {{"unchanged", "", ExitCode::kOk},
          {"slow:10%", "slow:10%", ExitCode::kRegression},
          {"wrong-accept", "wrong-accept", ExitCode::kCorrectness},
          {"miscount", "miscount", ExitCode::kCorrectness},
          {"missing-baseline", "", ExitCode::kNoBaseline}};
}

GateRequest with_fault(GateRequest request, const std::string& fault) {
  const auto& methods = request.plan.suite.methods;
  if (methods.size() < 2)
    throw base::usage_error(
        fmt::format("suite {} measures AR only: a fault is planted in another method",
                    request.plan.suite.name),
        "take a suite with a method such as pld");
  const std::string label = methods::parse_method(methods[1]).label();
  request.plan.faults = {{label, fault}};
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

std::vector<DrillOutcome> run_drills(const GateRequest& request, const std::string& database,
                                     base::Clock& clock, const runners::RunnerOptions& options,
                                     const std::function<void(const DrillOutcome&)>& done) {
  const auto store = std::make_shared<results::ResultStore>(database);
  measure_baseline(request, store, clock, options);
  std::vector<DrillOutcome> outcomes;
  for (const Drill& drill : gate_drills()) {
    outcomes.push_back(run_drill(drill, request, store, clock, options));
    done(outcomes.back());
  }
  return outcomes;
}

}  // namespace evalrun::cli
