// Cores this process may use: affinity mask, limited by a cgroup quota (containers).
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "engine/session.h"

namespace evalrun::engine {

int allowed_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) cores = CPU_COUNT(&mask);
  // cgroup v2: "<quota> <period>" in microseconds, or "max <period>".
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) {
    const int limit = static_cast<int>(std::stod(quota) / period);
    cores = std::min(cores, std::max(1, limit));
  }
  return std::max(1, cores);
}

}  // namespace evalrun::engine
