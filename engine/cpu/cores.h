// Which CPUs threads should run on, and how many: hardware threads of one physical core share its
// units and caches, so that every core gets one thread before any gets a second.
#pragma once
#include <filesystem>
#include <span>
#include <vector>

namespace evalrun::engine::cpu {

// CPUs of this process's affinity mask in the order threads are placed on them: one hardware thread
// per physical core, package by package, then their siblings. Never empty.
struct CpuOrder {
  std::vector<int> cpus;
  int n_cores = 1;  // the first n_cores of `cpus` are on different physical cores
};
CpuOrder cpu_order();
// The same for given CPUs and a tree like /sys/devices/system/cpu. Where the tree says nothing
// about a CPU, it counts as a core of its own.
CpuOrder cpu_order(std::span<const int> allowed, const std::filesystem::path& sys);

// Cores' worth of time the process may use per second: the smallest CPU quota of its control groups
// (v2: cpu.max of its group and those above; v1: cpu.cfs_quota_us); infinity when there is none.
double cpu_quota();
double cpu_quota(const std::filesystem::path& cgroups, const std::filesystem::path& proc_cgroup);

// Default number of threads. Physical cores and not hardware threads: a forward is bound by memory
// bandwidth or by the vector units, both of which siblings share, and a barrier waits for the
// slower of two siblings. A single core with siblings (a small virtual machine) gives all of them:
// two streams hide some of its memory latency. At most the quota, rounded down.
int default_threads(const CpuOrder& order, double quota);

}  // namespace evalrun::engine::cpu
