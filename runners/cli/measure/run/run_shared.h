// A run of several processes: `run --mpi`, `run --devices`, and what the latter starts with
// --peers.
#pragma once
#include <string>
#include <vector>

#include "runners/cli/cli.h"
#include "runners/cli/measure/run/run_arguments.h"
#include "runners/cli/measure/run/run_requests.h"

namespace evalrun::cli {

// It is one run, and nothing else decides what each process measures: throws usage_error for
// options that do not go with it.
void check_shared(const RunArguments& o, const std::vector<OneRun>& all);

// --devices: starts a process for each, and waits for them.
void start_devices(Context& context, const RunArguments& o, const std::string& nonce);

// As one of several processes (runners/cluster/shared_run.h). The first of them tells how it ended.
void run_as_part(Context& context, const RunArguments& o, const OneRun& one,
                 const std::string& nonce);

}  // namespace evalrun::cli
