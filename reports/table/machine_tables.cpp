#include "reports/table/machine_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/base/stats.h"
#include "engine/base/text.h"
#include "reports/format.h"
#include "reports/table/metric_glossary.h"

namespace evalrun::reports {

namespace {

constexpr size_t kNamedMachines = 8;  // more are counted, or stand for themselves at both ends
constexpr size_t kAtEachEnd = 3;
constexpr size_t kNamedArms = 6;

std::string names_text(const std::vector<MachineInfo>& machines) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kNamedMachines, machines.size()); ++i)
    names.push_back(machines[i].name);
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  if (machines.size() > kNamedMachines)
    text += fmt::format(" and {} more", machines.size() - kNamedMachines);
  return text;
}

// T(n)/T(1) by n, powers of two above 1.
struct CostRatios {
  double context = 0;
  std::map<int64_t, double> ratios;
};

std::optional<CostRatios> cost_ratios(const std::map<std::string, std::string>& facts) {
  const auto found = facts.find("row_cost");
  if (found == facts.end()) return std::nullopt;
  const nlohmann::json table = nlohmann::json::parse(found->second, nullptr, false);
  if (!table.is_object() || !table.contains("rows") || !table["rows"].is_array())
    return std::nullopt;
  const auto value = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_number()
               ? object[key].get<double>()
               : 0.0;
  };
  CostRatios cost;
  cost.context = value(table, "context");
  for (const nlohmann::json& row : table["rows"])
    if (const auto n = static_cast<uint64_t>(value(row, "rows")); n > 1 && std::has_single_bit(n))
      cost.ratios[static_cast<int64_t>(n)] = value(row, "ratio");
  if (cost.ratios.empty()) return std::nullopt;
  return cost;
}

std::string cost_line(const CostRatios& cost, const std::string& where) {
  std::vector<std::string> ratios;
  for (const auto& [rows, ratio] : cost.ratios)
    ratios.push_back(fmt::format("{} rows {:.2f}", rows, ratio));
  return fmt::format("T(n)/T(1) before the run{}, context {:.0f}: {}", where, cost.context,
                     fmt::join(ratios, ", "));
}

// Of many machines.
std::string cost_range_line(const std::vector<CostRatios>& costs) {
  std::map<int64_t, std::pair<double, double>> ranges;
  for (const CostRatios& cost : costs)
    for (const auto& [rows, ratio] : cost.ratios) {
      auto& [least, most] = ranges.try_emplace(rows, ratio, ratio).first->second;
      least = std::min(least, ratio), most = std::max(most, ratio);
    }
  std::vector<std::string> texts;
  for (const auto& [rows, range] : ranges)
    texts.push_back(fmt::format("{} rows {:.2f} to {:.2f}", rows, range.first, range.second));
  return fmt::format("T(n)/T(1) before the run on {} machines, from the least to the largest: {}",
                     costs.size(), fmt::join(texts, ", "));
}

using MachineRows = std::vector<const MachineFigure*>;

// With a speedup, the slowest first.
MachineRows by_speedup(const MachineFigures& machines) {
  MachineRows sorted;
  for (const MachineFigure& f : machines.each)
    if (f.speedup) sorted.push_back(&f);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const MachineFigure* a, const MachineFigure* b) {
                     return a->speedup->value < b->speedup->value;
                   });
  return sorted;
}

const std::string& name_of_machine(const RunInfo& run, const MachineFigure& f) {
  return run.machines[static_cast<size_t>(f.machine)].name;
}

void add_machine_row(const RunInfo& run, const MachineFigure& f, Table& t) {
  t.rows.push_back({name_of_machine(run, f), fmt::format("{}", f.prompts), number(f.base_tok_s, 1),
                    number(f.tok_s, 1),
                    f.speedup
                        ? figure_cell(f.speedup->value, f.speedup->interval, f.speedup->n_eff, 2)
                        : Cell("-"),
                    number(f.t_ratio, 3)});
}

std::string machine_p_text(double p) {
  return p < 0.001 ? "p < 0.001" : fmt::format("p {:.3f}", p);
}

}  // namespace

std::string machines_paragraph(const RunInfo& run) {
  if (!run.several_machines()) return "";
  const std::string hardware = hardware_text(run.machines);
  return fmt::format(
      "{} machines: {}{}, each prompt on one of them with all its arms. Speedups are formed within "
      "machines, a machine weighs by its tokens, and intervals are for these machines.",
      run.machines.size(), names_text(run.machines),
      hardware.empty() ? "" : fmt::format(" ({})", hardware));
}

std::vector<std::string> row_cost_lines(const RunInfo& run) {
  if (!run.several_machines()) {
    const auto cost = cost_ratios(run.environment);
    return cost ? std::vector{cost_line(*cost, "")} : std::vector<std::string>{};
  }
  std::vector<std::string> lines;
  std::vector<CostRatios> costs;
  for (const MachineInfo& m : run.machines)
    if (auto cost = cost_ratios(m.facts)) {
      lines.push_back(cost_line(*cost, " on " + m.name));
      costs.push_back(std::move(*cost));
    }
  return lines.size() > kNamedMachines ? std::vector{cost_range_line(costs)} : lines;
}

Table machine_table(const RunInfo& run, const DatasetRows& rows) {
  Table t{.columns = {{.name = "machine", .words = true},
                      {.name = "prompts", .room = Room::kSpare},
                      {.name = "plain tok/s", .room = Room::kSpare},
                      {.name = "tok/s"},
                      metric_column("speedup [95 %]", "speedup"),
                      metric_column("T(n)/T(1)", "t_ratio", Room::kPage)}};
  for (const ReportRow* r : rows.all()) {
    if (!r->machines || !r->arm.drafts()) continue;
    const MachineRows sorted = by_speedup(*r->machines);
    if (sorted.empty()) continue;
    t.parts[t.rows.size()] = r->arm.label;
    if (r->machines->each.size() <= kNamedMachines) {
      for (const MachineFigure& f : r->machines->each) add_machine_row(run, f, t);
      continue;
    }
    for (size_t i = 0; i < std::min(kAtEachEnd, sorted.size()); ++i)
      add_machine_row(run, *sorted[i], t);
    if (sorted.size() <= 2 * kAtEachEnd) continue;
    t.rows.push_back(
        {fmt::format("{} machines between", sorted.size() - 2 * kAtEachEnd), "", "", "", "", ""});
    for (size_t i = sorted.size() - kAtEachEnd; i < sorted.size(); ++i)
      add_machine_row(run, *sorted[i], t);
  }
  t.caption =
      "Machine by machine: speeds by its own clock; brackets: 95 % interval for new prompts on "
      "that "
      "machine.";
  t.label = "machines";
  return t;
}

std::string machines_remark(const RunInfo& run, const DatasetRows& rows) {
  std::vector<const ReportRow*> tested, estimated;
  std::vector<double> p;
  for (const ReportRow* r : rows.all()) {
    if (!r->machines || !r->arm.drafts()) continue;
    if (r->machines->spread) tested.push_back(r), p.push_back(r->machines->spread->p);
    if (r->machines->like_these && r->machines->like_these->interval) estimated.push_back(r);
  }
  std::vector<std::string> sentences;
  p = base::adjusted_p(p, base::Adjustment::kHolm);  // a reader looks at all arms
  std::vector<std::string> differing;
  for (size_t i = 0; i < tested.size(); ++i) {
    if (p[i] >= kMachinesDiffer) continue;
    const MachineRows sorted = by_speedup(*tested[i]->machines);
    differing.push_back(fmt::format(
        "{} {} ({}) to {} ({}), {}, I2 {}", tested[i]->arm.label,
        number(sorted.front()->speedup->value, 2), name_of_machine(run, *sorted.front()),
        number(sorted.back()->speedup->value, 2), name_of_machine(run, *sorted.back()),
        machine_p_text(p[i]), percent(tested[i]->machines->spread->i2, 0)));
  }
  const auto first = [](std::vector<std::string> texts) {
    const size_t all = texts.size();
    if (all > kNamedArms) texts.resize(kNamedArms);
    return fmt::format("{}{}", fmt::join(texts, "; "),
                       all > kNamedArms ? fmt::format("; and {} more", all - kNamedArms) : "");
  };
  if (!differing.empty())
    sentences.push_back(fmt::format("Machines differ: {}.", first(differing)));
  else if (!p.empty())
    sentences.push_back(fmt::format("Machines do not differ by more than chance (smallest {}).",
                                    machine_p_text(*std::min_element(p.begin(), p.end()))));
  std::vector<std::string> like_these;
  for (const ReportRow* r : estimated) {
    const Estimate& e = *r->machines->like_these;
    like_these.push_back(
        fmt::format("{} {} {}", r->arm.label, number(e.value, 2), bracket(*e.interval, 2)));
  }
  if (!like_these.empty())
    sentences.push_back(fmt::format(
        "The speedups above are for these machines. For machines like these{}: {}.",
        run.machines.size() == 2 ? ", of which two say little" : "", first(like_these)));
  return fmt::format("{}", fmt::join(sentences, " "));
}

}  // namespace evalrun::reports
