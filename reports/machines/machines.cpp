#include "reports/machines/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "results/machines.h"

namespace evalrun::reports {

std::string MachineInfo::hardware() const {
  for (const char* fact : {"gpu", "cpu"})
    if (const auto found = facts.find(fact); found != facts.end()) return found->second;
  return "";
}

std::vector<double> clock_scales(std::span<const PlainTotals> machines) {
  PlainTotals all;
  const auto measured = [](const PlainTotals& m) { return m.tokens > 0 && m.ns > 0; };
  for (const PlainTotals& m : machines)
    if (measured(m)) all.tokens += m.tokens, all.ns += m.ns;
  std::vector<double> scales;
  scales.reserve(machines.size());
  for (const PlainTotals& m : machines)
    scales.push_back(measured(m) ? (all.ns / all.tokens) / (m.ns / m.tokens) : 1);
  return scales;
}

std::vector<int64_t> MeasuredBy::machines() const {
  const std::set<int64_t> all(machine_.begin(), machine_.end());
  std::vector<int64_t> known;
  for (const int64_t row : all)
    if (row > 0) known.push_back(row);
  // Generations of before machines were stored are the only machine's that is known.
  if (all.contains(0) && known.size() > 1) known.push_back(0);
  return known;
}

std::vector<MachineInfo> machines_named(const results::ResultStore& store, int64_t run_id,
                                        std::span<const int64_t> rows) {
  std::map<int64_t, results::MachineRecord> records;
  for (results::MachineRow& row : results::machines(store, run_id))
    records[row.id] = std::move(row.record);
  std::vector<MachineInfo> machines;
  std::set<std::string> taken;
  for (const int64_t id : rows) {
    MachineInfo m;
    m.id = id;
    m.name = id == 0 ? "not stored" : fmt::format("machine {}", machines.size() + 1);
    if (const auto found = records.find(id); found != records.end()) {
      results::MachineRecord& record = found->second;
      if (!record.name.empty()) m.name = record.name;
      m.key = std::move(record.key);
      m.facts = std::move(record.facts);
    }
    const std::string name = m.name;
    for (int n = 2; !taken.insert(m.name).second; ++n) m.name = fmt::format("{} ({})", name, n);
    machines.push_back(std::move(m));
  }
  return machines;
}

std::string hardware_text(std::span<const MachineInfo> machines) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const MachineInfo& m : machines) {
    const std::string hardware = m.hardware();
    if (hardware.empty()) continue;
    const auto found = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.first == hardware; });
    if (found != kinds.end())
      ++found->second;
    else
      kinds.emplace_back(hardware, 1);
  }
  std::vector<std::string> parts;
  for (const auto& [name, n] : kinds)
    parts.push_back(n > 1 ? fmt::format("{} x {}", n, name) : name);
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace evalrun::reports
