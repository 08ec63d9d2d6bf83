#include "tests/repo/include_cycles.h"

#include <algorithm>
#include <regex>
#include <set>

#include "engine/base/text.h"

namespace evalrun::tests {
namespace {

using Graph = std::map<std::string, std::set<std::string>>;  // unit -> units it includes

std::string unit_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

Graph include_graph(const std::map<std::string, std::string>& texts) {
  static const std::regex include_line(R"re(^\s*#\s*include\s*"([^"]+)")re");
  Graph graph;
  for (const auto& [path, text] : texts) graph[unit_of(path)];
  for (const auto& [path, text] : texts) {
    const std::string unit = unit_of(path);
    for (const std::string& line : base::split(text, '\n')) {
      std::smatch match;
      if (line.find("#") == std::string::npos || !std::regex_search(line, match, include_line))
        continue;
      const std::string target = unit_of(match[1]);
      if (target != unit && graph.count(target) > 0) graph[unit].insert(target);
    }
  }
  return graph;
}

std::set<std::string> reachable_from(const Graph& graph, const std::string& start) {
  std::set<std::string> seen;
  std::vector<std::string> open(graph.at(start).begin(), graph.at(start).end());
  while (!open.empty()) {
    const std::string unit = open.back();
    open.pop_back();
    if (seen.insert(unit).second)
      open.insert(open.end(), graph.at(unit).begin(), graph.at(unit).end());
  }
  return seen;
}

}  // namespace

std::vector<std::vector<std::string>> include_cycles(
    const std::map<std::string, std::string>& texts) {
  const Graph graph = include_graph(texts);
  std::map<std::string, std::set<std::string>> reach;
  for (const auto& [unit, targets] : graph) reach[unit] = reachable_from(graph, unit);
  std::vector<std::vector<std::string>> rings;
  std::set<std::string> told;
  for (const auto& [unit, targets] : graph) {
    if (told.count(unit) > 0 || reach[unit].count(unit) == 0) continue;
    std::vector<std::string> ring;
    for (const std::string& other : reach[unit])
      if (reach[other].count(unit) > 0) ring.push_back(other);
    told.insert(ring.begin(), ring.end());
    rings.push_back(ring);  // sorted, being from a set
  }
  return rings;
}

}  // namespace evalrun::tests
