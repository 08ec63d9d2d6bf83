// A baseline of a run with servers: where these are now, and whether they can be judged.
#pragma once
#include <string>
#include <vector>

#include "reports/gate/gate_check.h"
#include "runners/cli/run_reference.h"
#include "runners/plan/suite.h"

namespace evalrun::cli {

bool has_servers(const RunReference& baseline);

// Servers that listen elsewhere than when baseline `name` was measured: "NAME=URL", or with all
// that --endpoint of `evalrun run` takes. Throws usage_error where the suite has no server of that
// name, and exit code 3 where API, model or prompt cache are not the baseline's.
void move_servers(const std::vector<std::string>& endpoints, const std::string& name,
                  runners::Suite& suite);

// Before anything is measured: throws exit code 3 where the servers of baseline `name` have no
// yardstick, and usage_error where --yardstick names none of its arms, or there are no servers.
void require_yardstick(const RunReference& baseline, const std::string& name,
                       const reports::GateOptions& options);

}  // namespace evalrun::cli
