// evalrun data model: the default model, fetched by the script that comes with the program.
#pragma once
#include "runners/cli/cli.h"

namespace evalrun::cli {

// Below `data`, a subcommand of the program.
void add_data_model_command(CLI::App& data, Context& context);

}  // namespace evalrun::cli
