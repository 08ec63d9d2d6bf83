// What `evalrun check` does when it measures: run the baseline's suite now, judge it, add repeats
// while the evidence is thin, and measure a red speed verdict once more. The decision itself is
// reports/gate/gate.h.
#pragma once
#include <optional>
#include <string>

#include "engine/base/clock.h"
#include "reports/gate/gate.h"
#include "results/store.h"
#include "runners/cli/gate/gate_outcome.h"
#include "runners/cli/run_reference.h"
#include "runners/measure/runner.h"
#include "runners/plan/plan.h"

namespace evalrun::cli {

struct GateRequest {
  runners::PlanRequest plan;  // suite completed; key parts (nonce) are drawn per measurement
  reports::GateOptions gate;  // `looks` is set from max_extra_runs
  int max_extra_runs = 2;     // times the suite's repeats are measured again while inconclusive
  bool confirm = true;        // a slowdown must show in a second, separate run too
};

// NAME of a baseline in `db`, or FILE:NAME; nullopt when there is none by that name.
std::optional<RunReference> find_baseline(const std::string& name, const std::string& db);
GateOutcome missing_baseline(const std::string& name, const std::string& db);

// Judges a stored run. Both stores may be the same.
GateOutcome judge_stored(const RunReference& baseline, const RunReference& run,
                         const reports::GateOptions& options);

// Measures into `store` and judges. Throws kInterrupted when told to stop; what was measured stays.
GateOutcome measure_and_judge(const GateRequest& request, const RunReference& baseline,
                              results::ResultStore& store, base::Clock& clock,
                              const runners::RunnerOptions& options);

}  // namespace evalrun::cli
