// `evalrun data overlap`: prompts of evaluation sets that stand in a text to train on.
#pragma once
#include "runners/cli/cli.h"

namespace evalrun::cli {

void add_data_overlap_command(CLI::App& data, Context& context);

}  // namespace evalrun::cli
