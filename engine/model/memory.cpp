#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "engine/model/assemble.h"

namespace evalrun::engine {
namespace {

// The number after `key` in a file of "key value" lines; an empty key takes the first word.
std::optional<int64_t> number_in(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string word;
  bool next = key.empty();
  while (in >> word) {
    if (next) {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;  // "max"
      return value;
    }
    next = word == key;
  }
  return std::nullopt;
}

// Bytes left below the limit of this process's cgroup (v2, then v1).
std::optional<int64_t> cgroup_left() {
  struct Layout {
    const char *limit, *used, *stat, *cache_key;
  };
  constexpr Layout kLayouts[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat",
       "inactive_file"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
       "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"}};
  for (const Layout& l : kLayouts) {
    const auto limit = number_in(l.limit, ""), used = number_in(l.used, "");
    if (!limit || !used) continue;
    // File pages that nobody used lately are given back under pressure.
    return std::max<int64_t>(0, *limit - *used + number_in(l.stat, l.cache_key).value_or(0));
  }
  return std::nullopt;
}

}  // namespace

int64_t available_memory_bytes() {
  const auto kib = number_in("/proc/meminfo", "MemAvailable:");
  const int64_t machine = kib ? *kib * 1024 : std::numeric_limits<int64_t>::max();
  return std::min(machine, cgroup_left().value_or(machine));
}

}  // namespace evalrun::engine
