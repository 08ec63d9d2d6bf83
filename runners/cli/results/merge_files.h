// What `merge` does with files, for other commands that end with it.
#pragma once
#include <string>
#include <vector>

#include "results/merge/merge_runs.h"
#include "runners/cli/cli.h"

namespace evalrun::cli {

// Merges, prints the outcome or its JSON, and sets the exit code where parts are missing.
void merge_files(Context& context, const std::string& out,
                 const std::vector<results::MergeInput>& inputs);

}  // namespace evalrun::cli
