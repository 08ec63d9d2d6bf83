// Papers' tables as text, Markdown, LaTeX (booktabs), and, a line per figure, CSV and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/papers/paper_table.h"

namespace evalrun::reports {

namespace {

// "1.94 ± 0.04 [1.80, 2.09]* (1.90)", published "1.94 ± 0.04 ! (1.90)".
std::string cell_text(const PaperCell& c, int decimals) {
  if (!c.value) return "-";
  const bool published = !c.printed.empty();
  std::string text = published ? c.printed : number(c.value, decimals);
  if (c.sd) text += " ± " + number(c.sd, decimals);
  if (c.interval)
    text +=
        fmt::format(" [{}, {}]{}", number(c.interval->lo, decimals),
                    number(c.interval->hi, decimals), c.n_prompts < kIndicativeBelow ? "*" : "");
  if (!c.findings.empty()) text += " !";
  if (c.plain)
    text += fmt::format(" ({})", published ? c.printed_plain : number(c.plain, decimals));
  return text;
}

std::string row_label(const PaperRow& r) { return r.label + (r.lossy ? " (not lossless)" : ""); }
std::string model_label(const PaperRow& r) { return r.model + (r.measured ? " (measured)" : ""); }

// Its parts that tell columns apart; what all share stands in the caption.
std::string column_name(const PaperTable& t, const PaperColumn& c) {
  const auto differs = [&](auto field) {
    return std::any_of(t.columns.begin(), t.columns.end(),
                       [&](const PaperColumn& x) { return x.*field != c.*field; });
  };
  const bool groups = differs(&PaperColumn::group), labels = differs(&PaperColumn::label);
  std::string name = groups ? c.group : "";
  if (labels || !groups) name += (groups ? " " : "") + c.label;
  if (t.form->models_as_columns) name += ", " + (c.model.empty() ? "measured" : c.model);
  return name;
}

bool has_models(const PaperTable& t) { return !t.form->models_as_columns; }
bool has_arms(const PaperTable& t) {
  return !t.form->methods_as_columns() && t.form->across.empty();
}

Table table_of(const PaperTable& t) {
  Table out;
  const char* rows = t.form->methods_as_columns() ? "data set" : "method";
  out.header = {has_models(t) && !t.form->methods_as_columns() ? "model" : rows};
  if (has_models(t)) {
    out.header.push_back(t.form->methods_as_columns() ? "model" : rows);
    out.text_to = 2;
  }
  out.links.resize(out.header.size());
  for (const PaperColumn& c : t.columns) {
    out.header.push_back(column_name(t, c));
    out.links.push_back(c.definition);
  }
  out.text_from = out.header.size();
  if (has_arms(t)) out.header.push_back("arm");
  for (const PaperRow& r : t.rows) {
    std::vector<std::string> line = {row_label(r)};
    if (has_models(t))
      line.insert(t.form->methods_as_columns() ? line.end() : line.begin(), model_label(r));
    for (size_t c = 0; c < r.cells.size(); ++c)
      line.push_back(cell_text(r.cells[c], t.columns[c].metric.decimals));
    if (has_arms(t)) line.push_back(r.arm.empty() ? "-" : r.arm);
    out.rows.push_back(std::move(line));
  }
  return out;
}

std::vector<std::string> definitions_of(const PaperTable& t) {
  std::vector<std::string> pages;
  for (const PaperColumn& c : t.columns)
    if (std::find(pages.begin(), pages.end(), c.definition) == pages.end())
      pages.push_back(c.definition);
  return pages;
}
std::string definitions_text(const PaperTable& t) {
  return fmt::format("Definitions: {} (evalrun list metrics).", fmt::join(definitions_of(t), ", "));
}

// ---- LaTeX ----

std::string latex_number(const PaperCell& c, int decimals) {
  if (!c.value) return "--";
  const bool published = !c.printed.empty();
  std::string text = published ? escape_latex(c.printed) : number(c.value, decimals);
  if (c.sd) text += "\\,$\\pm$\\," + number(c.sd, decimals);
  if (!c.findings.empty()) text += "$^{!}$";
  if (c.plain)
    text +=
        fmt::format(" ({})", published ? escape_latex(c.printed_plain) : number(c.plain, decimals));
  return text;
}

// Below the figure: a cell with its interval would be too wide for most of these tables.
std::string latex_interval(const PaperCell& c, int decimals) {
  if (!c.interval) return "";
  return fmt::format("{{\\scriptsize {{[}}{}, {}]{}}}", number(c.interval->lo, decimals),
                     number(c.interval->hi, decimals),
                     c.n_prompts < kIndicativeBelow ? "$^{*}$" : "");
}

std::string latex_of(const PaperTable& t) {
  const size_t text_columns = has_models(t) ? 2 : 1;
  std::string out;
  const auto line = [&](const std::string& s) { out += s + "\n"; };
  std::string arms;
  for (const PaperRow& r : t.rows)
    if (!r.arm.empty()) arms += fmt::format("{}{} = {}", arms.empty() ? "" : "; ", r.label, r.arm);
  std::replace_if(
      arms.begin(), arms.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  if (!arms.empty()) line("% Arms: " + arms);
  for (std::string detail : t.details) {
    std::replace_if(
        detail.begin(), detail.end(), [](unsigned char c) { return c < 0x20; }, ' ');
    line("% " + detail);
  }
  line("% " + definitions_text(t));
  line("\\begin{table}");
  line("  \\centering");
  std::string caption = escape_latex(t.caption) + ".";
  for (const std::string& note : t.notes) caption += " " + escape_latex(note);
  if (std::any_of(t.rows.begin(), t.rows.end(), [](const PaperRow& r) { return r.lossy; }))
    caption += " $^{\\dagger}$: not lossless.";
  line(fmt::format("  \\caption{{{}}}", caption));
  line(fmt::format("  \\label{{tab:evalrun-{}-{}}}",
                   t.form->paper == "self_draft" ? "self-draft" : t.form->paper, t.form->table));
  line(t.columns.size() > 6 ? "  \\scriptsize\\setlength{\\tabcolsep}{3pt}"
                            : "  \\footnotesize\\setlength{\\tabcolsep}{4pt}");
  line(fmt::format("  \\begin{{tabular}}{{{:l<{}}{:r<{}}}}", "", text_columns, "",
                   t.columns.size()));
  line("    \\toprule");
  std::string header = has_models(t)
                           ? t.form->methods_as_columns() ? "data set & model" : "model & method"
                           : "method";
  for (const PaperColumn& c : t.columns) header += " & " + escape_latex(column_name(t, c));
  line(fmt::format("    {} \\\\", header));
  for (size_t i = 0; i < t.rows.size(); ++i) {
    const PaperRow& r = t.rows[i];
    const bool first = i == 0 || (t.form->methods_as_columns() ? t.rows[i - 1].label != r.label
                                                               : t.rows[i - 1].model != r.model);
    const bool turn = i > 0 && !r.measured && t.rows[i - 1].measured;
    if (i == 0 || turn || (first && t.form->methods.size() > 1)) line("    \\midrule");
    const auto same_label = [&](const PaperRow& x) {
      return &x != &r && x.measured && x.model == r.model && x.label == r.label && !r.arm.empty();
    };
    std::string label = escape_latex(r.label);
    if (r.measured && std::any_of(t.rows.begin(), t.rows.end(), same_label))
      label += fmt::format(" (\\texttt{{{}}})", escape_latex(r.arm));
    if (r.lossy) label += "$^{\\dagger}$";
    std::string figures = label, intervals = "";
    if (has_models(t))
      figures = t.form->methods_as_columns() ? label + " & " + escape_latex(model_label(r))
                                             : escape_latex(model_label(r)) + " & " + label;
    bool any = false;
    for (size_t c = 0; c < r.cells.size(); ++c) {
      const int decimals = t.columns[c].metric.decimals;
      figures += " & " + latex_number(r.cells[c], decimals);
      const std::string interval = latex_interval(r.cells[c], decimals);
      intervals += " & " + interval;
      any = any || !interval.empty();
    }
    line(fmt::format("    {} \\\\", figures));
    if (any) line(fmt::format("    {}{} \\\\", has_models(t) ? "& " : "", intervals.substr(1)));
  }
  line("    \\bottomrule");
  line("  \\end{tabular}");
  line("\\end{table}");
  return out;
}

// ---- for programs ----

Json figures_of(const PaperTable& t) {
  Json list = Json::array();
  const auto value = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  for (const PaperRow& r : t.rows)
    for (size_t c = 0; c < r.cells.size(); ++c) {
      const PaperCell& cell = r.cells[c];
      const PaperColumn& column = t.columns[c];
      if (!cell.value) continue;
      const bool published = !cell.printed.empty();
      list.push_back({{"paper", t.form->paper},
                      {"table", t.form->table},
                      {"row", r.label},
                      {"column", column.group},
                      {"figure", column.label},
                      {"kind", published ? "published" : "measured"},
                      {"model", column.model.empty() ? r.model : column.model},
                      {"arm", published ? "" : r.arm},
                      {"lossy", published ? Json(nullptr) : Json(r.lossy)},
                      {"metric", published ? column.metric.published : column.metric.measured},
                      {"unit", column.metric.unit},
                      {"value", *cell.value},
                      {"lo", json_lo(cell.interval)},
                      {"hi", json_hi(cell.interval)},
                      {"sd", value(cell.sd)},
                      {"plain", value(cell.plain)},
                      {"n_prompts", published ? Json(nullptr) : Json(cell.n_prompts)},
                      {"printed", cell.printed},
                      {"findings", cell.findings},
                      {"tags", cell.tags},
                      {"definition", column.definition},
                      {"run", t.run.id}});
    }
  return list;
}

std::string render(const std::vector<PaperTable>& tables, bool markdown) {
  std::string out;
  for (const PaperTable& t : tables) {
    const auto text = [&](const std::string& s) { return markdown ? escape_markdown(s) : s; };
    out += out.empty() ? "" : "\n";
    out += markdown ? fmt::format("#### {}\n\n", text(t.caption))
                    : fmt::format("{}\n{:-<{}}\n", t.caption, "", display_width(t.caption));
    const Table table = table_of(t);
    out += (markdown ? table.markdown() : table.text()) + "\n";
    for (const auto* list : {&t.notes, &t.details})
      for (const std::string& note : *list) out += (markdown ? "- " : "  ") + text(note) + "\n";
    if (!markdown) out += "  " + definitions_text(t) + "\n";
  }
  return out;
}

}  // namespace

std::string to_text(const std::vector<PaperTable>& tables) { return render(tables, false); }
std::string to_markdown(const std::vector<PaperTable>& tables) { return render(tables, true); }

std::string to_latex(const std::vector<PaperTable>& tables) {
  std::string out =
      "% Needs \\usepackage{booktabs}. In a paper of two columns, write table* for table.\n";
  for (const PaperTable& t : tables) out += "\n" + latex_of(t);
  return out;
}

std::string to_json(const std::vector<PaperTable>& tables) {
  Json all = Json::array();
  for (const PaperTable& t : tables)
    for (Json& figure : figures_of(t)) all.push_back(std::move(figure));
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_csv(const std::vector<PaperTable>& tables) {
  std::string out;
  for (const PaperTable& t : tables)
    for (const Json& figure : figures_of(t)) {
      std::vector<std::string> names, cells;
      for (const auto& [name, v] : figure.items()) {
        names.push_back(name);
        std::string cell = v.is_null() ? "" : v.is_string() ? v.get<std::string>() : v.dump();
        if (v.is_array()) {
          cell.clear();
          for (const Json& item : v) cell += (cell.empty() ? "" : ";") + item.get<std::string>();
        }
        cells.push_back(escape_csv(cell));
      }
      if (out.empty()) out = fmt::format("{}\n", fmt::join(names, ","));
      out += fmt::format("{}\n", fmt::join(cells, ","));
    }
  return out;
}

}  // namespace evalrun::reports
