// evalrun tune method: which of a handful of methods to use on this model, machine and text.
#pragma once
#include "runners/cli/cli.h"

namespace evalrun::cli {

void add_tune_method(CLI::App& tune, Context& context);

}  // namespace evalrun::cli
