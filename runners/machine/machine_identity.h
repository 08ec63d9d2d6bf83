// Which machine a process measures on, for the table `machine`.
#pragma once
#include <map>
#include <string>

#include "results/records.h"

namespace evalrun::runners {

// The name is $EVALRUN_MACHINE, or that of the host. The key is a hash of the name and of what
// decides about times: processor, cores, those allowed, NUMA nodes, GPU, device, kernels, threads.
// The facts are the environment, and device, isa and threads. `environment`: of the run
// (runners/machine/environment.h); device and isa "" and threads 0 where nothing is decoded here.
results::MachineRecord this_machine(const std::map<std::string, std::string>& environment,
                                    const std::string& device, const std::string& isa, int threads);

}  // namespace evalrun::runners
