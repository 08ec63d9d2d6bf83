#include "engine/cpu/caches.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "engine/cpu/cores.h"

namespace evalrun::engine::cpu {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWhereUnknown = int64_t{256} << 20;

std::string word_in(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

// "1024K", "32M" or plain bytes, as the kernel writes the size of a cache; 0 for anything else.
int64_t bytes_of_size(const std::string& text) {
  size_t digits = 0;
  int64_t bytes = 0;
  for (; digits < text.size() && digits < 12 && text[digits] >= '0' && text[digits] <= '9';
       ++digits)
    bytes = 10 * bytes + (text[digits] - '0');
  const std::string unit = text.substr(digits);
  if (unit == "K") return bytes << 10;
  if (unit == "M") return bytes << 20;
  return unit.empty() ? bytes : 0;
}

// Where /sys is not to be seen: what the processor says of its first core's.
int64_t cache_bytes_of_libc(size_t n_cpus) {
  const long level2 = sysconf(_SC_LEVEL2_CACHE_SIZE), level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max(0L, level3) + static_cast<int64_t>(n_cpus) * std::max(0L, level2);
}

}  // namespace

int64_t cache_bytes(std::span<const int> cpus, const fs::path& sys) {
  std::set<std::pair<std::string, std::string>> seen;  // level, and the CPUs that share it
  int64_t total = 0;
  for (const int cpu : cpus) {
    const fs::path caches = sys / ("cpu" + std::to_string(cpu)) / "cache";
    std::error_code error;
    for (int index = 0;; ++index) {
      const fs::path cache = caches / ("index" + std::to_string(index));
      if (!fs::exists(cache, error)) break;
      const std::string level = word_in(cache / "level");
      if (level.empty() || level == "1" || word_in(cache / "type") == "Instruction") continue;
      // A kernel that does not say who shares a cache: nobody.
      std::string sharers = word_in(cache / "shared_cpu_list");
      if (sharers.empty()) sharers = std::to_string(cpu);
      if (seen.emplace(level, sharers).second) total += bytes_of_size(word_in(cache / "size"));
    }
  }
  return total;
}

int64_t cache_bytes() {
  const CpuOrder order = cpu_order();
  int64_t bytes = cache_bytes(order.cpus, "/sys/devices/system/cpu");
  if (bytes == 0) bytes = cache_bytes_of_libc(order.cpus.size());
  return bytes > 0 ? bytes : kWhereUnknown;
}

}  // namespace evalrun::engine::cpu
