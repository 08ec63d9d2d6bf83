// What `evalrun check` tells a CI system: its checks, or the drills of its self-test, as cases
// (reports/gate/ci_report.h), and where they go.
#pragma once
#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "reports/gate/ci_report.h"
#include "runners/cli/cli.h"
#include "runners/cli/gate/gate_drill.h"
#include "runners/cli/gate/gate_run.h"

namespace evalrun::cli {

struct CiOptions {
  std::string junit;    // --junit FILE, "" = none
  bool github = false;  // --github
  void add(CLI::App& app);
  // Before anything is measured: throws usage_error for --github outside of a GitHub job, or with
  // --json, whose document the workflow commands would break.
  void check(const GlobalOptions& global) const;
  // Writes all that was asked for. Throws data_error.
  void write(const reports::CiReport& report) const;
};

// One case for each verdict, or one that says why there is none. A verdict fails when its class is
// among `failing`; any other that is not ok warns. What the gate decided beyond a verdict (a
// slowdown that was not confirmed, an unfit machine) takes the verdict's place.
reports::CiReport ci_report(const GateOutcome& outcome, const std::vector<std::string>& failing);
// One case for each drill, of a suite on a model.
reports::CiReport ci_report(const std::vector<DrillOutcome>& drills, const std::string& suite,
                            const std::string& model_path);
// The one case of a check that an error ended.
reports::CiReport ci_report(const std::exception& error, const std::string& baseline);

}  // namespace evalrun::cli
