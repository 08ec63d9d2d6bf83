// What `evalrun run` measures, by its command line: a run for each model and each combination of
// values, and the plan request of each.
#pragma once
#include <string>
#include <vector>

#include "runners/cli/measure/loaded_models.h"
#include "runners/cli/measure/run/run_arguments.h"
#include "runners/cli/measure/run/run_settings.h"
#include "runners/plan/plan.h"

namespace evalrun::cli {

// One of the runs of a command.
struct OneRun {
  runners::Suite suite;  // of at most one model
  RunSetting setting;
};

// All of them, model by model.
std::vector<OneRun> make_runs(const RunArguments& o);
// "model small.gguf, dtype=q4": which of several runs it is.
std::string which_run(const OneRun& run);
// --nonce; of --no-resume without one, a new name.
std::string make_nonce(const RunArguments& o);
// Loads the models. `one_of_several`: the label says which.
runners::PlanRequest make_run_request(const RunArguments& o, const OneRun& run,
                                      const std::string& nonce, bool one_of_several,
                                      LoadedModels& models);

}  // namespace evalrun::cli
