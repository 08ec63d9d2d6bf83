// evalrun tune parameters: values of a method's parameters for this model, machine and text.
#pragma once
#include "runners/cli/cli.h"

namespace evalrun::cli {

void add_tune_parameters(CLI::App& tune, Context& context);

}  // namespace evalrun::cli
