// What the machine did while a generation ran, from two readings of the kernel's counters: was the
// processor throttled, did others use it?
#pragma once
#include <cstdint>
#include <optional>

#include "results/records.h"

namespace evalrun::runners {

// Since boot, or since the process began; of the cores this process may use.
struct MachineCounters {
  int cores = 0;  // 0 = nothing could be read
  int64_t wall_ns = 0;
  int64_t busy_ns = 0;   // somebody computed, the kernel included; other guests did not
  int64_t steal_ns = 0;  // other guests of the host had a core that was wanted here
  int64_t own_ns = 0;    // processor time of this process, all threads
  int64_t preempted = 0;
};
MachineCounters read_machine_counters();

// Mean clock of (the first 8 of) the cores in use, as the kernel tells it: cpufreq, else
// /proc/cpuinfo. Virtual machines often show a constant there. Absent where neither has it.
std::optional<double> processor_mhz();

// nullopt when either reading failed.
std::optional<results::ClockRecord> clock_between(const MachineCounters& before,
                                                  const MachineCounters& after);

}  // namespace evalrun::runners
