// `evalrun check --self-test`: proof that the gate turns red. An undisturbed run becomes the
// baseline of a temporary database; then nothing, and after it one planted fault at a time, is
// measured against it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runners/cli/gate_run.h"

namespace evalrun::cli {

struct Drill {
  std::string name;   // "unchanged", a fault of methods/faults.h, or "missing-baseline"
  std::string fault;  // "" = none
  base::ExitCode expected = base::ExitCode::kOk;
};
// The five of --self-test; slow:10%, wrong-accept and miscount among them.
std::vector<Drill> gate_drills();

struct DrillOutcome {
  Drill drill;
  GateOutcome gate;
  double seconds = 0;
  bool passed() const { return gate.code == drill.expected; }
};

// The request with the fault planted in the suite's first method arm and let into the verdict.
// Throws usage_error for an unknown fault and for a suite without a method besides AR.
GateRequest with_fault(GateRequest request, const std::string& fault);

// Measures the request's suite, undisturbed, into `store` and names it as baseline.
RunReference measure_baseline(const GateRequest& request,
                              const std::shared_ptr<results::ResultStore>& store,
                              base::Clock& clock, const runners::RunnerOptions& options);

// All drills in order; `done` hears of each as it ends.
std::vector<DrillOutcome> run_drills(const GateRequest& request, const std::string& database,
                                     base::Clock& clock, const runners::RunnerOptions& options,
                                     const std::function<void(const DrillOutcome&)>& done);

}  // namespace evalrun::cli
