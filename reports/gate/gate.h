// The decision of `evalrun check`: is the new run as correct and as fast as the stored baseline?
// Correctness first, by equality, without statistics; then speed, with a three-way verdict
// (docs/gate.md). Measuring, extending and confirming are the command's business.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"
#include "results/store.h"

namespace evalrun::reports {

struct GateResult {
  base::ExitCode code = base::ExitCode::kOk;
  std::vector<GateCheck> checks;
  // |mean log ratio| of the A/A arms, the larger of the two runs. In runs with batches: the largest
  // of all sizes, and the margin it gives. Arms are judged by their own size's (GateCheck::margin).
  double noise_floor = 0;
  double margin = 0;                  // a proven loss beyond this is a regression
  std::string summary;                // one line for stdout
  std::vector<std::string> warnings;  // of the yardsticks of servers
  // A verdict on speed is open that more repeats may close.
  bool more_repeats_help() const;
  RunInfo base, current;
};

// Runs of one build, each a process of its own.
struct Sessions {
  const results::ResultStore& store;
  std::vector<int64_t> runs;  // not empty
};
// Compares every session of `current` with the first of `base`. The speed is judged over all, by
// the spread between sessions where a side has several (sessions.h). Throws data_error where a
// side's sessions did not measure the same. With options.lock_step, session i of both sides took
// turns, and the sides have as many.
GateResult evaluate_gate(const Sessions& base, const Sessions& current,
                         const GateOptions& options = {});
GateResult evaluate_gate(const results::ResultStore& base_store, int64_t base_run,
                         const results::ResultStore& new_store, int64_t new_run,
                         const GateOptions& options = {});

std::string to_json(const GateResult& r);  // {"exit_code", "outcome", "summary", "margin", ...}
std::string to_text(const GateResult& r);  // one line per verdict, worst first

}  // namespace evalrun::reports
