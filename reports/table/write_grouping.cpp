// Groups side by side, as a Document and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "reports/document/records.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/table/grouping.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

// More columns than this have no room for brackets in a terminal or on a page.
constexpr size_t kGroupsWithIntervals = 3;

// "1.43 ± 0.12", and how many of the groups it is over where some are missing.
std::string mean_text(const GroupedRow& row) {
  if (!row.mean) return "-";
  std::string text = number(row.mean, 3);
  if (row.sd) text += " ± " + number(row.sd, 3);
  if (row.n_groups < static_cast<int64_t>(row.cells.size()))
    text += fmt::format(" ({} of {})", row.n_groups, row.cells.size());
  return text;
}

Cell group_cell(const GroupCell& cell, bool intervals) {
  return intervals ? figure_cell(cell.value, cell.interval, cell.n_eff, 3) : number(cell.value, 3);
}

// Settings are alternatives: a mean over them says nothing.
bool has_means(const GroupedReport& report) { return !report.axis.ends_with("setting"); }

// What is shown of these tables, for the end of the page or the caption of one.
std::string explanation(const GroupedReport& report, std::span<const GroupedTable> tables) {
  bool brackets = false, few = false;
  for (const GroupedTable& table : tables) {
    if (table.groups.size() > kGroupsWithIntervals) continue;
    for (const GroupedRow& row : table.rows)
      for (const GroupCell& cell : row.cells) {
        brackets = brackets || cell.interval.has_value();
        few = few || (cell.interval && cell.n_eff < kIndicativeBelow);
      }
  }
  const std::string same = !has_means(report)       ? "column"
                           : report.axis == "model" ? "model"
                                                    : "prompts";
  std::string text = fmt::format(
      "speedup: {} of decode speed against plain decoding of the same {};{} tau: tokens per "
      "step, the target's own included; alpha_draft: accepted over drafted tokens.",
      estimator_text(report.estimator), same,
      has_means(report) ? "" : " tok_s: tokens per second of decoding;");
  if (has_means(report))
    text += " Mean and standard deviation (n - 1) are over the columns, each counted once.";
  if (brackets) text += " Brackets: 95 % interval for new prompts of the same kind.";
  if (few) text += fmt::format(" *: {}.", kIndicative);
  return text;
}

// Methods by figure, a column per group.
Table grouped_table(const GroupedReport& report, const GroupedTable& table) {
  const bool intervals = table.groups.size() <= kGroupsWithIntervals;
  Table t{.columns = {{.name = "method", .words = true}}};
  for (const std::string& group : table.groups) t.columns.push_back({.name = group});
  if (has_means(report)) t.columns.push_back({.name = "mean ± sd"});
  std::string figure;
  for (const GroupedRow& row : table.rows) {
    if (row.figure != figure) t.parts[t.rows.size()] = row.figure;
    figure = row.figure;
    t.rows.push_back({row.method + (row.lossy ? " (not lossless)" : "")});
    for (const GroupCell& cell : row.cells) t.rows.back().push_back(group_cell(cell, intervals));
    if (has_means(report)) t.rows.back().emplace_back(mean_text(row));
  }
  t.caption = fmt::format("{} by {}. {}", dataset_name(table.dataset), report.axis,
                          explanation(report, {&table, 1}));
  t.label = fmt::format("{}-by-{}", table.dataset, report.axis);
  return t;
}

// A line per method, figure and group.
Json grouped_records(const GroupedReport& report) {
  Json rows = Json::array();
  for (const GroupedTable& table : report.tables)
    for (const GroupedRow& row : table.rows)
      for (size_t i = 0; i < row.cells.size(); ++i) {
        const GroupCell& cell = row.cells[i];
        rows.push_back({{"dataset", table.dataset},
                        {"figure", row.figure},
                        {"method", row.method},
                        {"axis", report.axis},
                        {"group", table.groups[i]},
                        {"value", json_value(cell.value)},
                        {"lo", json_lo(cell.interval)},
                        {"hi", json_hi(cell.interval)},
                        {"n_prompts", cell.n_prompts},
                        {"mean", json_value(row.mean)},
                        {"sd", json_value(row.sd)},
                        {"n_groups", row.n_groups}});
      }
  return rows;
}

}  // namespace

Document document(const GroupedReport& report) {
  Document d{.name = "groups"};
  for (const RunInfo& run : report.runs) d.paragraph(run_line(run));
  for (const GroupedTable& table : report.tables) {
    d.heading(fmt::format("{} by {}", dataset_name(table.dataset), report.axis));
    d.table(grouped_table(report, table));
  }
  d.paragraph(explanation(report, report.tables));
  d.data = records(grouped_records(report));
  return d;
}

std::string to_json(const GroupedReport& report) {
  Json runs = Json::array(), tables = Json::array();
  for (const RunInfo& run : report.runs)
    runs.push_back(
        {{"run", run.id}, {"run_label", run.label}, {"suite", run.suite}, {"commit", run.commit}});
  for (const GroupedTable& table : report.tables) {
    Json rows = Json::array();
    for (const GroupedRow& row : table.rows) {
      Json cells = Json::array();
      for (size_t i = 0; i < row.cells.size(); ++i) {
        const GroupCell& cell = row.cells[i];
        cells.push_back({{"group", table.groups[i]},
                         {"value", json_value(cell.value)},
                         {"lo", json_lo(cell.interval)},
                         {"hi", json_hi(cell.interval)},
                         {"n_prompts", cell.n_prompts}});
      }
      rows.push_back({{"figure", row.figure},
                      {"method", row.method},
                      {"lossy", row.lossy},
                      {"groups", std::move(cells)},
                      {"mean", json_value(row.mean)},
                      {"sd", json_value(row.sd)},
                      {"n_groups", row.n_groups}});
    }
    tables.push_back({{"dataset", table.dataset}, {"rows", std::move(rows)}});
  }
  const Json document = {{"group_by", report.axis},
                         {"estimator", to_string(report.estimator)},
                         {"runs", std::move(runs)},
                         {"tables", std::move(tables)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
