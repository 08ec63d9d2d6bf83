#include "runners/cli/gate/gate_drill.h"

#include <algorithm>
#include <string_view>

#include "methods/faults.h"
#include "methods/registration.h"

namespace evalrun::cli {
namespace {

constexpr const char* kBaseline = "self-test";
constexpr std::string_view kArSlow = "ar-slow:", kAllSlow = "all-slow:";

DrillOutcome run_drill(const Drill& drill, const GateRequest& undisturbed,
                       const std::shared_ptr<results::ResultStore>& store, base::Clock& clock,
                       const runners::RunnerOptions& options) {
  DrillOutcome outcome{drill, {}, 0};
  const int64_t begin = clock.now_ns();
  // The name decides, as it does for the command: one that nobody saved is the drill of that.
  const std::string name = drill.name == "missing-baseline" ? "never-saved" : kBaseline;
  if (const auto baseline = find_baseline(name, store->path())) {
    GateRequest request = drill.fault.empty() ? undisturbed : with_fault(undisturbed, drill.fault);
    // Equality needs no repeats: these checks come before any time is looked at.
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

std::vector<reports::Cause> speed_causes_of(const reports::GateResult& result) {
  for (const reports::GateCheck& v : result.checks)
    if (v.metric == "speed") return v.causes;  // worst first
  return {};
}

bool DrillOutcome::passed() const {
  if (gate.code != drill.expected) return false;
  const std::vector<reports::Cause> causes = speed_causes_of(gate.result);
  return !drill.cause || std::find(causes.begin(), causes.end(), *drill.cause) != causes.end();
}

std::vector<Drill> gate_drills() {
  using base::ExitCode;
  using reports::Cause;
  return {{"unchanged", "", ExitCode::kOk},
          {"slow:5%", "slow:5%", ExitCode::kRegression, Cause::kMethodSlower},
          {"ar-slow:5%", "ar-slow:5%", ExitCode::kRegression, Cause::kArSlower},
          {"wrong-accept", "wrong-accept", ExitCode::kCorrectness},
          {"miscount", "miscount", ExitCode::kCorrectness},
          {"missing-baseline", "", ExitCode::kNoBaseline}};
}

void check_fault(const std::string& fault) {
  std::vector<std::string> known = methods::known_faults();
  known.insert(known.end(), {"ar-slow:5%", "all-slow:5%"});
  const bool slow =
      fault.starts_with("slow:") || fault.starts_with(kArSlow) || fault.starts_with(kAllSlow);
  // How much is read when it is planted, which is before anything is measured, too.
  if (!(slow && fault.ends_with("%")) &&
      std::find(known.begin(), known.end(), fault) == known.end())
    throw base::usage_error(fmt::format("unknown fault '{}'", fault), base::suggest(fault, known));
}

GateRequest with_fault(GateRequest request, const std::string& fault) {
  const auto& methods = request.plan.suite.methods;
  if (methods.size() < 2)
    throw base::usage_error(
        fmt::format("suite {} measures AR only: a fault is planted in another method",
                    request.plan.suite.name),
        "take a suite with a method such as pld");
  const bool plain = fault.starts_with(kArSlow), all = fault.starts_with(kAllSlow);
  // "slow:5%" of "ar-slow:5%".
  const std::string planted = plain || all ? fault.substr(fault.find('-') + 1) : fault;
  request.plan.faults.clear();
  if (plain || all) {
    request.plan.faults["ar"] = planted;
    if (request.plan.suite.aa) request.plan.faults["ar (A/A)"] = planted;
  }
  if (!plain) request.plan.faults[methods::parse_method(methods[1]).label()] = planted;
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
