// `evalrun check --plan`: what a check against this stored baseline could find on this machine,
// said before anything is measured.
#pragma once
#include <optional>
#include <string>

#include "reports/gate/gate_check.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {

struct GatePlan {
  std::string baseline;
  int64_t run = 0;
  int sessions = 1;              // of the baseline
  int history = 1;               // stored sessions of the same thing, those included
  bool servers = false;          // it measured some
  std::optional<double> spread;  // between them; absent for one
  double wanted = 0;             // the slowdown that shall be found: two percent beyond the margin
  std::optional<double> detectable;
  // Not known, without a spread, is not able.
  bool able() const { return detectable && *detectable <= wanted; }
};
GatePlan plan_gate(const std::string& name, const RunReference& baseline,
                   const reports::GateOptions& options);

std::string plan_text(const GatePlan& plan);
std::string plan_json_text(const GatePlan& plan);

}  // namespace evalrun::cli
