#include "reports/table/grouping.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::reports {

namespace {

void add_unique(std::vector<std::string>& list, const std::string& name) {
  if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
}

// The rows of one table on their way: by method and group.
struct Cells {
  std::vector<std::string> groups, methods;
  std::map<std::pair<std::string, std::string>, const ReportRow*> rows;
  void add(const std::string& group, const ReportRow& row) {
    add_unique(groups, group);
    add_unique(methods, row.arm.label);
    rows[{row.arm.label, group}] = &row;
  }
};

GroupCell cell_of(const ReportRow& row, const std::string& figure) {
  if (figure == "speedup") return {row.speed.speedup, row.speed.interval, row.counts.prompts};
  if (figure == "tau") return {row.acceptance.tau, row.acceptance.tau_interval, row.counts.prompts};
  return {row.acceptance.alpha_draft, std::nullopt, row.counts.prompts};
}

GroupedTable table_of(const std::string& dataset, const Cells& cells) {
  GroupedTable table{.dataset = dataset, .groups = cells.groups, .rows = {}};
  for (const char* figure : {"speedup", "tau", "alpha_draft"}) {
    const auto begin = static_cast<std::ptrdiff_t>(table.rows.size());
    for (const std::string& method : cells.methods) {
      GroupedRow row;
      row.figure = figure;
      row.method = method;
      std::vector<double> values;
      for (const std::string& group : cells.groups) {
        const auto it = cells.rows.find({method, group});
        row.cells.push_back(it == cells.rows.end() ? GroupCell{} : cell_of(*it->second, figure));
        if (it != cells.rows.end()) row.lossy = row.lossy || it->second->arm.lossy();
        if (row.cells.back().value) values.push_back(*row.cells.back().value);
      }
      row.n_groups = static_cast<int64_t>(values.size());
      if (!values.empty()) row.mean = base::mean(values);
      if (values.size() > 1) row.sd = base::sample_sd(values);
      table.rows.push_back(std::move(row));
    }
    std::stable_partition(table.rows.begin() + begin, table.rows.end(),
                          [](const GroupedRow& r) { return !r.lossy; });
  }
  return table;
}

std::string model_of(const Report& report) {
  for (const ReportRow& r : report.rows)
    if (r.arm.role == "baseline") return r.arm.model;
  return report.rows.empty() ? "" : report.rows.front().arm.model;
}

// Runs of one model (another format, another build) are told apart by their numbers.
std::vector<std::string> column_names(const std::vector<Report>& reports) {
  std::map<std::string, int> times;
  for (const Report& r : reports) ++times[model_of(r)];
  std::vector<std::string> names;
  for (const Report& r : reports) {
    std::string name = model_of(r);
    if (times[name] > 1) name += fmt::format(" (run {})", r.run.id);
    if (std::find(names.begin(), names.end(), name) != names.end())
      throw base::usage_error(fmt::format("two columns would both be {}", name),
                              "name every run once; `evalrun list runs` shows them");
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

GroupedReport group_by_model(const std::vector<Report>& reports) {
  if (reports.size() < 2)
    throw base::usage_error("one run is one model: nothing to set beside it",
                            "name a run per model: evalrun report RUN1 RUN2 --columns-by model");
  GroupedReport grouped{
      .axis = "model", .runs = {}, .estimator = reports.front().estimator, .tables = {}};
  const std::vector<std::string> names = column_names(reports);
  std::vector<std::string> datasets;
  for (const Report& report : reports) {
    grouped.runs.push_back(report.run);
    for (const ReportRow& r : report.rows)
      if (r.dataset != "all") add_unique(datasets, r.dataset);
  }
  if (datasets.size() > 1) datasets.emplace_back("all");
  for (const std::string& dataset : datasets) {
    Cells cells;
    cells.groups = names;
    for (size_t i = 0; i < reports.size(); ++i)
      for (const ReportRow& r : reports[i].rows)
        if (r.dataset == dataset && r.arm.drafts()) cells.add(names[i], r);
    if (!cells.methods.empty()) grouped.tables.push_back(table_of(dataset, cells));
  }
  if (grouped.tables.empty())
    throw base::usage_error("these runs measured plain decoding only: there is nothing to compare");
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
