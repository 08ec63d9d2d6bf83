#include "reports/table/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "reports/table/flattered.h"

namespace evalrun::reports {

namespace {

void add_unique(std::vector<std::string>& list, const std::string& name) {
  if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
}

// The rows of one table on their way: by method and group.
struct Cells {
  std::vector<std::string> groups, methods;
  std::vector<const char*> figures = {"speedup", "tau", "alpha_draft"};
  std::map<std::pair<std::string, std::string>, const ReportRow*> rows;
  // Plain decoding, which has a speed and nothing else.
  bool is_plain(const std::string& method) const {
    for (const std::string& group : groups)
      if (const auto it = rows.find({method, group}); it != rows.end())
        return !it->second->arm.drafts();
    return false;
  }
  void add(const std::string& group, const ReportRow& row) {
    add_unique(groups, group);
    add_unique(methods, row.arm.label);
    rows[{row.arm.label, group}] = &row;
  }
};

GroupCell cell_of(const ReportRow& row, const std::string& figure) {
  if (figure == "speedup")
    return {row.speed.speedup, row.speed.interval, row.counts.prompts, row.speed.n_eff};
  if (figure == "tok_s") return {row.speed.tok_s, std::nullopt, row.counts.prompts};
  if (figure == "tau")
    return {row.acceptance.tau, row.acceptance.tau_interval, row.counts.prompts,
            row.acceptance.tau_n_eff};
  return {row.acceptance.alpha_draft, std::nullopt, row.counts.prompts};
}

GroupedTable table_of(const std::string& dataset, const Cells& cells) {
  GroupedTable table{.dataset = dataset, .groups = cells.groups, .rows = {}};
  for (const std::string figure : cells.figures) {
    const auto begin = static_cast<std::ptrdiff_t>(table.rows.size());
    for (const std::string& method : cells.methods) {
      if (figure != "tok_s" && cells.is_plain(method)) continue;
      GroupedRow row;
      row.figure = figure;
      row.method = method;
      std::vector<double> values;
      for (const std::string& group : cells.groups) {
        const auto it = cells.rows.find({method, group});
        row.cells.push_back(it == cells.rows.end() ? GroupCell{} : cell_of(*it->second, figure));
        if (it != cells.rows.end()) {
          row.lossy = row.lossy || it->second->arm.lossy();
          row.synthetic = row.synthetic || synthetic(it->second->arm);
          row.cells.back().overlap = training_overlap(it->second->arm);
          row.cells.back().flattered = flattered_by(it->second->arm);
        }
        if (row.cells.back().value) values.push_back(*row.cells.back().value);
      }
      row.n_groups = static_cast<int64_t>(values.size());
      if (!values.empty()) row.mean = base::mean(values);
      if (values.size() > 1) row.sd = base::sample_sd(values);
      table.rows.push_back(std::move(row));
    }
    const auto last = [](const GroupedRow& r) { return std::pair(r.synthetic, r.lossy); };
    std::stable_sort(table.rows.begin() + begin, table.rows.end(),
                     [&](const GroupedRow& a, const GroupedRow& b) { return last(a) < last(b); });
  }
  return table;
}

const ArmInfo& baseline_of(const Report& report) {
  static const ArmInfo none;
  for (const ReportRow& r : report.rows)
    if (r.arm.role == "baseline") return r.arm;
  return report.rows.empty() ? none : report.rows.front().arm;
}

// What a run may be made with, as options of `run` name it.
std::vector<std::pair<std::string, std::string>> settings_of(const ArmInfo& arm) {
  const nlohmann::json stored = nlohmann::json::parse(arm.settings, nullptr, false);
  const auto text = [&](const char* name) {
    const auto found = stored.is_object() ? stored.find(name) : stored.end();
    return found != stored.end() && found->is_string() ? found->get<std::string>() : "default";
  };
  return {
      {"device", arm.device},
      {"dtype", arm.dtype},
      {"isa", arm.isa},
      {"reproducible", stored.is_object() && stored.contains("bits") ? text("bits") : "cross-isa"},
      {"kv-dtype", text("kv_dtype")},
      {"threads", fmt::format("{}", arm.threads)},
      {"max-new", fmt::format("{}", arm.max_new)},
      {"temperature", fmt::format("{:g}", arm.temperature)}};
}

struct Columns {
  std::string axis;
  std::vector<std::string> names;
};

// Named by their models; where that does not tell all apart, by what settings differ, too; and
// where none does, by the runs' numbers.
Columns columns_of(const std::vector<Report>& reports) {
  Columns columns{.axis = {}, .names = std::vector<std::string>(reports.size())};
  const auto add = [&](size_t column, const std::string& part) {
    std::string& name = columns.names[column];
    name += (name.empty() ? "" : ", ") + part;
  };
  const ArmInfo& first = baseline_of(reports.front());
  std::set<std::string> names;
  for (const Report& r : reports) names.insert(baseline_of(r).model);
  const bool models = names.size() > 1;
  const auto settings = settings_of(first);
  std::vector<bool> differs(settings.size());
  for (const Report& r : reports) {
    if (names.size() == reports.size()) break;
    const auto others = settings_of(baseline_of(r));
    for (size_t i = 0; i < settings.size(); ++i)
      if (others[i] != settings[i]) differs[i] = true;
  }
  const bool varied = std::find(differs.begin(), differs.end(), true) != differs.end();
  columns.axis = !varied ? "model" : models ? "model, setting" : "setting";
  for (size_t c = 0; c < reports.size(); ++c) {
    const ArmInfo& arm = baseline_of(reports[c]);
    if (models || !varied) add(c, arm.model);
    const auto own = settings_of(arm);
    for (size_t i = 0; i < own.size(); ++i)
      if (differs[i]) add(c, own[i].first + "=" + own[i].second);
  }
  std::map<std::string, int> times;
  for (const std::string& name : columns.names) ++times[name];
  for (size_t c = 0; c < reports.size(); ++c) {
    std::string& name = columns.names[c];
    if (times[name] > 1) name += fmt::format(" (run {})", reports[c].run.id);
    if (std::find(columns.names.begin(), columns.names.begin() + static_cast<std::ptrdiff_t>(c),
                  name) != columns.names.begin() + static_cast<std::ptrdiff_t>(c))
      throw base::usage_error(fmt::format("two columns would both be {}", name),
                              "name every run once; `evalrun list runs` shows them");
  }
  return columns;
}

}  // namespace

GroupedReport group_by_run(const std::vector<Report>& reports) {
  if (reports.size() < 2)
    throw base::usage_error("one run is one model: nothing to set beside it",
                            "name a run per model: evalrun report RUN1 RUN2 --columns-by model");
  const Columns columns = columns_of(reports);
  const bool speeds = columns.axis != "model";
  GroupedReport grouped{
      .axis = columns.axis, .runs = {}, .estimator = reports.front().estimator, .tables = {}};
  std::vector<std::string> datasets;
  bool drafts = false;
  for (const Report& report : reports) {
    grouped.runs.push_back(report.run);
    for (const ReportRow& r : report.rows) {
      if (r.dataset != "all") add_unique(datasets, r.dataset);
      drafts = drafts || r.arm.drafts();
    }
  }
  if (!drafts && !speeds)
    throw base::usage_error("these runs measured plain decoding only: there is nothing to compare");
  if (datasets.size() > 1) datasets.emplace_back("all");
  for (const std::string& dataset : datasets) {
    Cells cells;
    cells.groups = columns.names;
    if (speeds) cells.figures.insert(cells.figures.begin() + 1, "tok_s");
    for (size_t i = 0; i < reports.size(); ++i)
      for (const ReportRow& r : reports[i].rows)
        if (r.dataset == dataset && (r.arm.drafts() || (speeds && r.arm.role == "baseline")))
          cells.add(columns.names[i], r);
    if (!cells.methods.empty()) grouped.tables.push_back(table_of(dataset, cells));
  }
  return grouped;
}

GroupedReport group_by_part(const Report& report, const std::string& axis) {
  constexpr std::string_view kSeparator = " / ";
  GroupedReport grouped{
      .axis = axis, .runs = {report.run}, .estimator = report.estimator, .tables = {}};
  std::vector<std::string> datasets;
  std::map<std::string, Cells> tables;
  bool parts = false;
  for (const ReportRow& r : report.rows) {
    if (r.dataset == "all" || !r.arm.drafts()) continue;
    const size_t end = r.dataset.find(kSeparator);
    const std::string dataset = r.dataset.substr(0, end);
    add_unique(datasets, dataset);
    parts = parts || end != std::string::npos;
    tables[dataset].add(end == std::string::npos ? "-" : r.dataset.substr(end + kSeparator.size()),
                        r);
  }
  if (datasets.empty())
    throw base::usage_error("this run measured plain decoding only: there is nothing to group");
  if (!parts)
    throw base::usage_error(fmt::format("no prompt of this run has a {}", axis),
                            "`evalrun report` without --columns-by shows the data sets whole");
  for (const std::string& dataset : datasets)
    grouped.tables.push_back(table_of(dataset, tables[dataset]));
  return grouped;
}

}  // namespace evalrun::reports
