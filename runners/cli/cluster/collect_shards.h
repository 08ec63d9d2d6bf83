// The shards of a cluster's folder, put together into one run.
#pragma once
#include <string>

#include "runners/cli/cli.h"
#include "runners/cluster/cluster_folder.h"

namespace evalrun::cli {

// Merges the copies that are there into `out`, says what is missing and which command goes on, and
// sets the exit code of `merge`.
void collect_shards(Context& context, const runners::ClusterFolder& folder,
                    const runners::ClusterPlan& plan, const std::string& out);

}  // namespace evalrun::cli
