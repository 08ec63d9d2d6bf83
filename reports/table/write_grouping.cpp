// Groups side by side, in every format but HTML.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/table/grouping.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

// More columns than this have no room for brackets in a terminal or on a page.
constexpr size_t kGroupsWithIntervals = 3;

std::string run_text(const RunInfo& run) {
  return fmt::format("evalrun {} · run {}{} · suite {} · commit {} · {}", run.version, run.id,
                     run.label.empty() ? "" : fmt::format(" '{}'", run.label), run.suite,
                     run.commit, run.started);
}

std::string dataset_name(const GroupedTable& table) {
  return table.dataset == "all" ? "all data sets" : table.dataset;
}

// "1.43 ± 0.12", and how many of the groups it is over where some are missing.
std::string mean_text(const GroupedRow& row) {
  if (!row.mean) return "-";
  std::string text = number(row.mean, 3);
  if (row.sd) text += " ± " + number(row.sd, 3);
  if (row.n_groups < static_cast<int64_t>(row.cells.size()))
    text += fmt::format(" ({} of {})", row.n_groups, row.cells.size());
  return text;
}

std::string cell_text(const GroupCell& cell, bool intervals) {
  return intervals ? with_interval(cell.value, cell.interval, cell.n_prompts, 3)
                   : number(cell.value, 3);
}

// What is shown of these tables, for the end of the page or the caption of one.
std::string explanation(const GroupedReport& report, std::span<const GroupedTable> tables) {
  bool brackets = false, few = false;
  for (const GroupedTable& table : tables) {
    if (table.groups.size() > kGroupsWithIntervals) continue;
    for (const GroupedRow& row : table.rows)
      for (const GroupCell& cell : row.cells) {
        brackets = brackets || cell.interval.has_value();
        few = few || (cell.interval && cell.n_prompts < kIndicativeBelow);
      }
  }
  std::string text = fmt::format(
      "speedup: {} of decode speed against plain decoding of the same {}; tau: tokens per step, "
      "the "
      "target's own included; alpha_draft: accepted over drafted tokens. Mean and standard "
      "deviation (n - 1) are over the columns, each counted once.",
      estimator_text(report.estimator), report.axis == "model" ? "model" : "prompts");
  if (brackets) text += " Brackets: 95 % interval for new prompts of the same kind.";
  if (few)
    text += fmt::format(" *: from fewer than {} prompts, indicative only.", kIndicativeBelow);
  return text;
}

std::string render_table(const GroupedReport& report, bool markdown) {
  const auto text = [&](const std::string& s) { return markdown ? escape_markdown(s) : s; };
  std::string out;
  for (const RunInfo& run : report.runs) out += text(run_text(run)) + (markdown ? "\n\n" : "\n");
  for (const GroupedTable& table : report.tables) {
    const std::string title = fmt::format("{} by {}", dataset_name(table), report.axis);
    out += markdown ? fmt::format("\n#### {}\n\n", text(title))
                    : fmt::format("\n{}\n{:-<{}}\n", title, "", display_width(title));
    // One block per figure, named by the head of its first column.
    for (auto row = table.rows.begin(); row != table.rows.end();) {
      Table block;
      block.header = {row->figure};
      block.header.insert(block.header.end(), table.groups.begin(), table.groups.end());
      block.header.emplace_back("mean ± sd");
      for (const std::string figure = row->figure; row != table.rows.end() && row->figure == figure;
           ++row) {
        block.rows.push_back({row->method + (row->lossy ? " (not lossless)" : "")});
        for (const GroupCell& cell : row->cells)
          block.rows.back().push_back(cell_text(cell, table.groups.size() <= kGroupsWithIntervals));
        block.rows.back().push_back(mean_text(*row));
      }
      out += (markdown ? block.markdown() : block.text()) + "\n";
    }
  }
  out += text(explanation(report, report.tables)) + "\n";
  return out;
}

std::string csv_number(const std::optional<double>& v) { return v ? Json(*v).dump() : ""; }

}  // namespace

std::string to_markdown(const GroupedReport& report) { return render_table(report, true); }
std::string to_text(const GroupedReport& report) { return render_table(report, false); }

std::string to_csv(const GroupedReport& report) {
  std::string out = "dataset,figure,method,axis,group,value,lo,hi,n_prompts,mean,sd,n_groups\n";
  for (const GroupedTable& table : report.tables)
    for (const GroupedRow& row : table.rows)
      for (size_t i = 0; i < row.cells.size(); ++i) {
        const GroupCell& cell = row.cells[i];
        const auto end = [&](double base::Interval::*at) {
          return cell.interval ? csv_number((*cell.interval).*at) : "";
        };
        out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", escape_csv(table.dataset),
                           row.figure, escape_csv(row.method), escape_csv(report.axis),
                           escape_csv(table.groups[i]), csv_number(cell.value),
                           end(&base::Interval::lo), end(&base::Interval::hi), cell.n_prompts,
                           csv_number(row.mean), csv_number(row.sd), row.n_groups);
      }
  return out;
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
                         {"estimator", report.estimator == Estimator::kGeo ? "geo" : "sum"},
                         {"runs", std::move(runs)},
                         {"tables", std::move(tables)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_latex(const GroupedReport& report) {
  std::string out;
  for (const RunInfo& run : report.runs) out += "% " + latex_comment(run_text(run)) + "\n";
  out += "% Needs \\usepackage{booktabs}. In a paper of two columns, write table* for table.\n";
  for (const GroupedTable& table : report.tables) {
    const bool intervals = table.groups.size() <= kGroupsWithIntervals;
    out += fmt::format(
        "\n\\begin{{table}}\n  \\centering\n  \\caption{{{} by {}. {}}}\n  "
        "\\label{{tab:evalrun-{}-by-{}}}\n  \\footnotesize\\setlength{{\\tabcolsep}}{{4pt}}\n  "
        "\\begin{{tabular}}{{l{}r}}\n    \\toprule\n    method",
        escape_latex(dataset_name(table)), escape_latex(report.axis),
        escape_latex(explanation(report, {&table, 1})), latex_label(table.dataset),
        latex_label(report.axis), std::string(table.groups.size(), 'r'));
    for (const std::string& group : table.groups) out += " & " + escape_latex(group);
    out += " & mean $\\pm$ sd \\\\\n";
    std::string figure;
    for (const GroupedRow& row : table.rows) {
      if (row.figure != figure)
        out += fmt::format("    \\midrule\n    \\multicolumn{{{}}}{{l}}{{\\emph{{{}}}}} \\\\\n",
                           table.groups.size() + 2, escape_latex(row.figure));
      figure = row.figure;
      out += "    " + escape_latex(row.method) + (row.lossy ? " (not lossless)" : "");
      for (const GroupCell& cell : row.cells)
        out += " & " + escape_latex(cell_text(cell, intervals));
      out += " & " + escape_latex(mean_text(row)) + " \\\\\n";
    }
    out += "    \\bottomrule\n  \\end{tabular}\n\\end{table}\n";
  }
  return out;
}

std::string render(const GroupedReport& report, const std::string& format) {
  if (format == "md") return to_markdown(report);
  if (format == "csv") return to_csv(report);
  if (format == "json") return to_json(report);
  if (format == "latex") return to_latex(report);
  return to_text(report);
}

}  // namespace evalrun::reports
