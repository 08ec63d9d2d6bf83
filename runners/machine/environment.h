// The machine a run was measured on, as far as it can be read without rights.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace evalrun::runners {

// Machine and build: cpu, cpu_flags, cores_allowed, cores, numa_nodes (of the CPUs allowed),
// memory_bytes, kernel, os, governor, load, energy_domains (of processor_energy.h), steal_share,
// compiler, build_type, commit, version, and every EVALRUN_* variable as env.NAME. What cannot be
// read is absent.
std::map<std::string, std::string> capture_environment();

// Every EVALRUN_* variable of this process.
std::map<std::string, std::string> evalrun_variables();
// Those that may change a figure: all but the ones that only say where files are (EVALRUN_HOME,
// EVALRUN_DATA, EVALRUN_DB, EVALRUN_SHARED, EVALRUN_NVML, EVALRUN_POWERCAP, EVALRUN_MACHINE) and
// EVALRUN_ISA, whose effect is a field of its own.
std::map<std::string, std::string> figure_variables();

// Jiffies since boot over all cores: time another guest had our cores, and all time.
struct CpuTimes {
  int64_t steal = 0, total = 0;
};
CpuTimes read_cpu_times();

// Peak resident size of this process since the last reset (since the start when the kernel does not
// allow resets).
void reset_peak_memory();
int64_t peak_memory_bytes();

std::string utc_now();  // ISO 8601, seconds

}  // namespace evalrun::runners
