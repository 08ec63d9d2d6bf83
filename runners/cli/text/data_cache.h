// `evalrun data cache`: the files of converted weights, listed and cleared.
#pragma once
#include "runners/cli/cli.h"

namespace evalrun::cli {

void add_data_cache_command(CLI::App& data, Context& context);

}  // namespace evalrun::cli
