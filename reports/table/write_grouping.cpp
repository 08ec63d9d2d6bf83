// Groups side by side, as a Document and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "reports/document/records.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/table/flattered.h"
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

// The marks, and "(not lossless)" or "(synthetic)", after the method's name.
std::string group_label(const GroupedRow& row) {
  const bool overlaps = std::any_of(row.cells.begin(), row.cells.end(),
                                    [](const GroupCell& cell) { return !cell.overlap.empty(); });
  const bool flattered = std::any_of(row.cells.begin(), row.cells.end(),
                                     [](const GroupCell& cell) { return !cell.flattered.empty(); });
  return fmt::format("{}{}{}{}", row.method, overlaps ? fmt::format(" {}", kOverlapMark) : "",
                     flattered ? fmt::format(" {}", kFlattersMark) : "",
                     row.synthetic ? " (synthetic)"
                     : row.lossy   ? " (not lossless)"
                                   : "");
}

// What the second mark means; the columns have other models or settings.
std::string groups_flatters_note(std::span<const GroupedTable> tables) {
  std::vector<std::pair<std::string, std::string>> arms;
  for (const GroupedTable& table : tables)
    for (const GroupedRow& row : table.rows)
      for (size_t i = 0; i < row.cells.size(); ++i)
        arms.emplace_back(fmt::format("{} ({})", row.method, table.groups[i]),
                          row.cells[i].flattered);
  return flatters_note(arms);
}

// What the mark means. Models have adapters of their own: "eagle (small)" where columns differ.
std::string groups_overlap_note(std::span<const GroupedTable> tables) {
  std::vector<NamedOverlap> arms;
  for (const GroupedTable& table : tables)
    for (const GroupedRow& row : table.rows) {
      std::set<TrainingOverlap> adapters;
      for (const GroupCell& cell : row.cells)
        if (cell.n_prompts > 0) adapters.insert(cell.overlap);
      for (size_t i = 0; i < row.cells.size(); ++i)
        arms.emplace_back(
            adapters.size() > 1 ? fmt::format("{} ({})", row.method, table.groups[i]) : row.method,
            row.cells[i].overlap);
    }
  return overlap_note(overlap_sentence(arms));
}

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
  if (const std::string note = groups_overlap_note(tables); !note.empty()) text += " " + note;
  if (const std::string note = groups_flatters_note(tables); !note.empty()) text += " " + note;
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
    t.rows.push_back({group_label(row)});
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
                        {"n_groups", row.n_groups},
                        {"training_overlap", overlap_list(cell.overlap)}});
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
                         {"n_prompts", cell.n_prompts},
                         {"training_overlap", overlap_json(cell.overlap)}});
      }
      rows.push_back({{"figure", row.figure},
                      {"method", row.method},
                      {"lossy", row.lossy},
                      {"synthetic", row.synthetic},
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
