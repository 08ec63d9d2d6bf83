// What `run --mpi` and `run --devices` say of their end.
#pragma once
#include <string>

#include "runners/cluster/shared_run.h"

namespace evalrun::cli {

// Warnings of what is missing, with `resume_command`; the exit code of rank 0.
int tell_shared(const runners::SharedOutcome& outcome, const std::string& database,
                const std::string& resume_command);

}  // namespace evalrun::cli
