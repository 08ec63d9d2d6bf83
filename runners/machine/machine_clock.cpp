#include "runners/machine/machine_clock.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/clock.h"

namespace evalrun::runners {
namespace {

std::vector<int> cores_in_use() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  return cores;
}

// N of "cpuN", -1 for anything else, the sum over all cores among it.
int core_of(const std::string& label) {
  if (label.size() < 4 || !label.starts_with("cpu") || label[3] < '0' || label[3] > '9') return -1;
  return std::atoi(label.c_str() + 3);
}

int64_t ns_of(const timeval& t) {
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + static_cast<int64_t>(t.tv_usec) * 1000;
}

}  // namespace

MachineCounters read_machine_counters() {
  MachineCounters c;
  const std::vector<int> cores = cores_in_use();
  const int64_t tick_ns = 1'000'000'000 / std::max(1L, ::sysconf(_SC_CLK_TCK));
  std::ifstream in("/proc/stat");
  for (std::string line; std::getline(in, line) && line.starts_with("cpu");) {
    std::istringstream fields(line);
    std::string label;
    // Guest times, which come after these, are part of user and nice.
    int64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    fields >> label >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    if (!fields || !std::binary_search(cores.begin(), cores.end(), core_of(label))) continue;
    ++c.cores;
    c.busy_ns += (user + nice + system + irq + softirq) * tick_ns;
    c.steal_ns += steal * tick_ns;
  }
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  c.own_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime);
  c.preempted = usage.ru_nivcsw;
  c.wall_ns = base::SteadyClock().now_ns();
  return c;
}

std::optional<double> processor_mhz() {
  constexpr size_t kMost = 8;
  std::vector<int> cores = cores_in_use();
  cores.resize(std::min(cores.size(), kMost));
  double sum = 0;
  size_t found = 0;
  for (const int core : cores) {
    std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq", core));
    if (double khz = 0; in >> khz && khz > 0) sum += khz / 1000, ++found;
  }
  if (found > 0) return sum / static_cast<double>(found);
  std::ifstream in("/proc/cpuinfo");
  int core = -1;
  for (std::string line; found < cores.size() && std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("processor")) core = std::atoi(line.c_str() + colon + 1);
    if (!line.starts_with("cpu MHz") || !std::binary_search(cores.begin(), cores.end(), core))
      continue;
    if (const double mhz = std::atof(line.c_str() + colon + 1); mhz > 0) sum += mhz, ++found;
  }
  return found > 0 ? std::optional(sum / static_cast<double>(found)) : std::nullopt;
}

std::optional<results::ClockRecord> clock_between(const MachineCounters& before,
                                                  const MachineCounters& after) {
  if (before.cores == 0 || after.cores != before.cores) return std::nullopt;
  results::ClockRecord clock;
  clock.available_ns = (after.wall_ns - before.wall_ns) * after.cores;
  clock.own_ns = after.own_ns - before.own_ns;
  // The kernel counts busy time by ticks and ours exactly: the difference may be negative.
  clock.others_ns = std::max<int64_t>(0, after.busy_ns - before.busy_ns - clock.own_ns);
  clock.steal_ns = std::max<int64_t>(0, after.steal_ns - before.steal_ns);
  clock.preempted = after.preempted - before.preempted;
  return clock;
}

}  // namespace evalrun::runners
