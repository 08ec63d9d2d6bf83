// `run --devices`: a process for each device of this machine, which share one run
// (runners/cluster/shared_run.h). This one only starts them, passes signals on and waits.
#pragma once
#include <string>
#include <vector>

namespace evalrun::runners {

struct DeviceSlot {
  std::string device;      // as --device has it
  std::vector<int> cores;  // that the process may use; empty = all
  bool operator==(const DeviceSlot&) const = default;
};

// "cuda:0,cuda:1", "cpu,cpu", "cpu:0-3,cpu:4-7". Plain "cpu"s share `allowed` in equal blocks.
// Throws usage_error: kinds mixed, a GPU or core named twice, a core that is not allowed, fewer
// cores than processes.
std::vector<DeviceSlot> parse_device_slots(const std::vector<std::string>& names,
                                           const std::vector<int>& allowed);
std::vector<int> allowed_cores();  // of this process

// `words`: of the command line, the program first, which each process gets with its --device and
// --peers on top. Returns the exit code of the first one, which knows what became of the others.
int run_device_processes(const std::vector<DeviceSlot>& slots,
                         const std::vector<std::string>& words);

// Without every "NAME VALUE" and "NAME=VALUE".
std::vector<std::string> without_option(const std::vector<std::string>& words,
                                        const std::string& name);

}  // namespace evalrun::runners
