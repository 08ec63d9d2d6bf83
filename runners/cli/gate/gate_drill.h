// `evalrun check --self-test`: proof that the gate turns red. An undisturbed run becomes the
// baseline of a temporary database; then nothing, and after it one planted fault at a time, is
// measured against it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runners/cli/gate/gate_run.h"

namespace evalrun::cli {

struct Drill {
  std::string name;   // "unchanged", a fault (with_fault), or "missing-baseline"
  std::string fault;  // "" = none
  base::ExitCode expected = base::ExitCode::kOk;
  std::optional<reports::Cause> cause = {};  // what the verdict on speed has to name
};
// Those of --self-test.
std::vector<Drill> gate_drills();

struct DrillOutcome {
  Drill drill;
  GateOutcome gate;
  double seconds = 0;
  bool passed() const;
};

// What the verdict on the speed of the faulty arm names as moved; empty where nothing did.
std::vector<reports::Cause> speed_causes_of(const reports::GateResult& result);

// usage_error for anything with_fault() does not know.
void check_fault(const std::string& fault);

// The request with a fault planted and let into the verdict: one of methods/faults.h in the suite's
// first method arm, "ar-slow:5%" in plain decoding, "all-slow:5%" in both. Throws usage_error for a
// suite without a method besides AR.
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
