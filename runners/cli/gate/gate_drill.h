// `evalrun check --self-test`: proof that the gate turns red. For faults of speed, this build
// measures itself in lock step, one of both with the fault. For faults of the output, which are
// found by equality, an undisturbed run becomes the baseline of a temporary database.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runners/cli/gate/gate_against.h"
#include "runners/cli/gate/gate_run.h"

namespace evalrun::cli {

struct Drill {
  std::string name;   // "unchanged", a fault (with_fault), or "missing-baseline"
  std::string fault;  // "" = none
  base::ExitCode expected = base::ExitCode::kOk;
  std::optional<reports::Cause> cause = {};  // what a verdict on speed has to name
  bool lock_step = false;                    // about speed
};
// Those of --self-test.
std::vector<Drill> gate_drills();

struct DrillOutcome {
  Drill drill;
  GateOutcome gate;
  double seconds = 0;
  bool passed() const;
};

// What the verdicts on speed name as moved, worst first; empty where nothing did.
std::vector<reports::Cause> speed_causes_of(const reports::GateResult& result);

// The request with a fault planted (runners/plan/planted_faults.h) and let into the verdict.
GateRequest with_fault(GateRequest request, const std::string& fault);

// Measures the request's suite, undisturbed, into `store` and names it as baseline.
RunReference measure_baseline(const GateRequest& request,
                              const std::shared_ptr<results::ResultStore>& store,
                              base::Clock& clock, const runners::RunnerOptions& options);

struct DrillMeans {
  AgainstRequest against;  // this build against itself, without a fault
  std::function<GateRequest()>
      request;  // loads the model; called once the drills of speed are done
  std::string database;
  base::Clock& clock;
  const runners::RunnerOptions& options;
};

// All drills in order; `done` hears of each as it ends.
std::vector<DrillOutcome> run_drills(const DrillMeans& means,
                                     const std::function<void(const DrillOutcome&)>& done);

}  // namespace evalrun::cli
