#include "reports/html/sweeps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "reports/data/parameters.h"

namespace evalrun::reports {

namespace {

struct Candidate {
  const ArmInfo* arm = nullptr;
  Parameters parameters;
};

// Everything but the parameters, the method included.
std::string mode_of(const ArmInfo& arm) {
  std::string text = arm.method;
  for (const auto& [name, value] : engine_mode(arm))
    if (name != "parameters") text += "\n" + value;
  return text;
}

// Candidates of one mode that agree in all parameters but `swept`, where each is a number.
std::map<Parameters, std::vector<SweepPoint>> groups_of(const std::vector<Candidate>& candidates,
                                                        const std::vector<std::string>& swept) {
  std::map<Parameters, std::vector<SweepPoint>> groups;
  for (const Candidate& c : candidates) {
    Parameters rest = c.parameters;
    SweepPoint point{c.arm->label, {}};
    for (const std::string& name : swept) {
      const auto found = rest.find(name);
      const auto value = found != rest.end() ? number_of(found->second) : std::nullopt;
      if (!value) break;
      point.values.push_back(*value);
      rest.erase(found);
    }
    if (point.values.size() == swept.size()) groups[rest].push_back(std::move(point));
  }
  return groups;
}

size_t distinct_values(const std::vector<SweepPoint>& points, size_t at) {
  std::set<double> values;
  for (const SweepPoint& p : points) values.insert(p.values[at]);
  return values.size();
}

// Parameters whose values differ between the groups, as text: what names one among them.
std::string told_apart_by(const Parameters& own, const std::vector<Candidate>& candidates,
                          const std::vector<std::string>& swept) {
  std::string text;
  for (const auto& [name, value] : own) {
    if (std::find(swept.begin(), swept.end(), name) != swept.end()) continue;
    const bool varies = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      const auto found = c.parameters.find(name);
      return found == c.parameters.end() || found->second != value;
    });
    if (varies) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  }
  return text;
}

void add_sweeps(std::vector<Sweep>& sweeps, const std::vector<Candidate>& candidates,
                const std::vector<std::string>& swept) {
  for (auto& [rest, points] : groups_of(candidates, swept)) {
    bool wide = points.size() >= (swept.size() == 1 ? 2 : 4);
    for (size_t i = 0; i < swept.size(); ++i) wide = wide && distinct_values(points, i) >= 2;
    if (!wide) continue;
    std::sort(points.begin(), points.end(),
              [](const SweepPoint& a, const SweepPoint& b) { return a.values < b.values; });
    sweeps.push_back({candidates.front().arm->method, swept, told_apart_by(rest, candidates, swept),
                      std::move(points)});
  }
}

}  // namespace

std::vector<Sweep> find_sweeps(const std::vector<ArmInfo>& arms) {
  std::vector<std::string> order;  // of the modes, as the arms come
  std::map<std::string, std::vector<Candidate>> by_mode;
  for (const ArmInfo& arm : arms) {
    if (arm.role != "method") continue;
    const std::string mode = mode_of(arm);
    if (!by_mode.contains(mode)) order.push_back(mode);
    by_mode[mode].push_back({&arm, parse_parameters(arm.params)});
  }
  std::vector<Sweep> pairs, singles;
  for (const std::string& mode : order) {
    const std::vector<Candidate>& candidates = by_mode.at(mode);
    std::set<std::string> names;
    for (const Candidate& c : candidates)
      for (const auto& [name, value] : c.parameters)
        if (number_of(value)) names.insert(name);
    for (auto a = names.begin(); a != names.end(); ++a) {
      add_sweeps(singles, candidates, {*a});
      for (auto b = std::next(a); b != names.end(); ++b) add_sweeps(pairs, candidates, {*a, *b});
    }
  }
  pairs.insert(pairs.end(), singles.begin(), singles.end());
  return pairs;
}

}  // namespace evalrun::reports
