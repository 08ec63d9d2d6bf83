#include "engine/cpu/places.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>

namespace evalrun::engine::cpu {
namespace {

namespace fs = std::filesystem;
constexpr int kMostCpus = 1 << 16;  // a range beyond that is no range of CPUs

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number at the beginning of `text`, which loses it; -1 when there is none.
int take_number(std::string_view& text) {
  int n = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || n < 0) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return n;
}

// CPU -> node, from folders node0, node1, ...
std::map<int, int> nodes_of_cpus(const fs::path& folder) {
  std::map<int, int> nodes;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    std::string_view number = std::string_view(name).substr(4);
    const int node = take_number(number);
    if (node < 0 || !number.empty()) continue;
    for (const int cpu : cpus_in_list(line_of(entry.path() / "cpulist"))) nodes[cpu] = node;
  }
  return nodes;
}

// The CPUs that share this one's cache of the highest level, in the kernel's words.
std::string sharers_of_last_cache(const fs::path& cpu) {
  std::string sharers;
  std::error_code error;
  for (int index = 0, highest = 0;; ++index) {
    const fs::path cache = cpu / "cache" / ("index" + std::to_string(index));
    if (!fs::exists(cache, error)) return sharers;
    const std::string text = line_of(cache / "level");
    std::string_view level = text;
    if (const int n = take_number(level); n > highest)
      highest = n, sharers = line_of(cache / "shared_cpu_list");
  }
}

}  // namespace

std::vector<int> cpus_in_list(std::string_view list) {
  std::vector<int> cpus;
  while (true) {
    const int first = take_number(list);
    if (first < 0) return cpus;
    int last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      last = take_number(list);
    }
    if (last < first || last >= kMostCpus) return cpus;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (!list.starts_with(',')) return cpus;
    list.remove_prefix(1);
  }
}

std::vector<int> Places::nodes() const {
  std::vector<int> seen;
  for (const int n : node)
    if (std::find(seen.begin(), seen.end(), n) == seen.end()) seen.push_back(n);
  return seen;
}

Places one_place(int n_threads) {
  const auto n = static_cast<size_t>(n_threads);
  return {std::vector<int>(n), std::vector<int>(n)};
}

Places places_of(std::span<const int> cpus, const fs::path& sys) {
  const std::map<int, int> nodes = nodes_of_cpus(sys / "node");
  std::map<std::pair<int, std::string>, int> clusters;  // node and sharers -> number
  Places places;
  for (const int cpu : cpus) {
    const auto it = nodes.find(cpu);
    const int node = it == nodes.end() ? 0 : it->second;
    const fs::path folder = sys / "cpu" / ("cpu" + std::to_string(cpu));
    const auto next = static_cast<int>(clusters.size());
    places.node.push_back(node);
    places.cluster.push_back(
        clusters.try_emplace({node, sharers_of_last_cache(folder)}, next).first->second);
  }
  return places;
}

}  // namespace evalrun::engine::cpu
