#include "engine/cpu/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <tuple>

#include "engine/devices.h"

namespace evalrun::engine {
namespace cpu {
namespace {

namespace fs = std::filesystem;
constexpr double kNoQuota = std::numeric_limits<double>::infinity();

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(static_cast<size_t>(c), &mask)) cpus.push_back(c);
  if (cpus.empty())  // a machine beyond the mask's size, or a kernel that refuses
    for (int c = 0; c < std::max(1, static_cast<int>(std::thread::hardware_concurrency())); ++c)
      cpus.push_back(c);
  return cpus;
}

// The first number in a file: a package id, or the lowest CPU of a sibling list ("0,64", "2-3").
int number_in(const fs::path& file, int otherwise) {
  std::ifstream in(file);
  int n = 0;
  return in >> n ? n : otherwise;
}

// cpu.max: "<quota> <period>" in microseconds, or "max <period>".
double quota_v2(const fs::path& group) {
  std::ifstream in(group / "cpu.max");
  double quota = 0, period = 0;
  return in >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoQuota;
}

double quota_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0 ? quota / period
                                                                                 : kNoQuota;
}

}  // namespace

CpuOrder cpu_order(std::span<const int> allowed, const fs::path& sys) {
  struct Place {
    int rank, package, core, cpu;  // rank among the allowed hardware threads of its core
    auto key() const { return std::tuple(rank, package, core, cpu); }
  };
  std::vector<Place> places;
  for (const int c : allowed) {
    const fs::path topology = sys / ("cpu" + std::to_string(c)) / "topology";
    places.push_back({0, number_in(topology / "physical_package_id", 0),
                      number_in(topology / "thread_siblings_list", c), c});
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.cpu < b.cpu; });
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      places[i].rank += places[j].core == places[i].core && places[j].package == places[i].package;
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.key() < b.key(); });
  CpuOrder order;
  for (const Place& p : places) order.cpus.push_back(p.cpu);
  order.n_cores = static_cast<int>(
      std::count_if(places.begin(), places.end(), [](const Place& p) { return p.rank == 0; }));
  return order;
}

CpuOrder cpu_order() { return cpu_order(allowed_cpus(), "/sys/devices/system/cpu"); }

double cpu_quota(const fs::path& cgroups, const fs::path& proc_cgroup) {
  // Inside a container the root is its own group; outside, /proc/self/cgroup says where to start.
  double quota = std::min(quota_v2(cgroups), quota_v1(cgroups / "cpu"));
  std::ifstream in(proc_cgroup);
  for (std::string line; std::getline(in, line);) {  // "0::/a/b", "4:cpu,cpuacct:/a"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    const fs::path root = v2 ? cgroups : cgroups / "cpu";
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path(); !group.empty();
         group = group.parent_path())
      quota = std::min(quota, v2 ? quota_v2(root / group) : quota_v1(root / group));
  }
  return quota;
}

double cpu_quota() { return cpu_quota("/sys/fs/cgroup", "/proc/self/cgroup"); }

int default_threads(const CpuOrder& order, double quota) {
  const int threads = order.n_cores > 1 ? order.n_cores : static_cast<int>(order.cpus.size());
  return std::max(1, static_cast<int>(std::min<double>(threads, std::floor(quota))));
}

}  // namespace cpu

int allowed_cores() { return cpu::default_threads(cpu::cpu_order(), cpu::cpu_quota()); }

}  // namespace evalrun::engine
