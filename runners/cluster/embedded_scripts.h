// The job scripts of schedulers (scripts/slurm/evalrun.sbatch), compiled into the library.
#pragma once
#include <span>

#include "engine/base/embedded_file.h"

namespace evalrun::runners {

std::span<const base::EmbeddedFile> embedded_scripts();

}  // namespace evalrun::runners
