// Papers' tables as a Document, and, an object per figure, as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "reports/document/records.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/papers/table.h"

namespace evalrun::reports {

namespace {

// "1.94 ± 0.04 ^ (1.90) [1.80, 2.09]*", published "1.94 ± 0.04 ! (1.90)".
Cell paper_cell(const PaperCell& c, int decimals) {
  if (!c.value) return "-";
  const bool published = !c.printed.empty();
  Cell cell(published ? c.printed : number(c.value, decimals));
  if (c.sd) cell.text += " ± " + number(c.sd, decimals);
  if (!c.findings.empty()) cell.text += " !";
  if (c.unequal) cell.text += " ^";
  if (c.plain)
    cell.text += fmt::format(" ({})", published ? c.printed_plain : number(c.plain, decimals));
  if (!c.interval) return cell;
  cell.range = bracket(*c.interval, decimals);
  cell.indicative = c.n_eff < kIndicativeBelow;
  return cell;
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

// The label of a row; where several measured arms share one, the arm as well.
std::string full_label(const PaperTable& t, const PaperRow& r) {
  const bool shared = r.measured && !r.arm.empty() &&
                      std::any_of(t.rows.begin(), t.rows.end(), [&](const PaperRow& x) {
                        return &x != &r && x.measured && x.model == r.model && x.label == r.label;
                      });
  return shared ? fmt::format("{} ({})", row_label(r), r.arm) : row_label(r);
}

Table table_of(const PaperTable& t) {
  const bool by_data = t.form->methods_as_columns();
  Table out{.columns = {{.name = by_data ? "data set" : "method", .words = true}}};
  if (has_models(t))
    out.columns.insert(by_data ? out.columns.end() : out.columns.begin(),
                       {.name = "model", .words = true});
  for (const PaperColumn& c : t.columns)
    out.columns.push_back({.name = column_name(t, c), .link = c.definition});
  if (has_arms(t)) out.columns.push_back({.name = "arm", .words = true, .room = Room::kWide});
  for (size_t i = 0; i < t.rows.size(); ++i) {
    const PaperRow& r = t.rows[i];
    const PaperRow& before = t.rows[i > 0 ? i - 1 : 0];
    const bool first = by_data ? before.label != r.label : before.model != r.model;
    if ((!r.measured && before.measured) || (first && t.form->methods.size() > 1)) out.parts[i];
    std::vector<Cell> line = {full_label(t, r)};
    if (has_models(t)) line.insert(by_data ? line.end() : line.begin(), model_label(r));
    for (size_t c = 0; c < r.cells.size(); ++c)
      line.push_back(paper_cell(r.cells[c], t.columns[c].metric.decimals));
    if (has_arms(t)) line.emplace_back(r.arm.empty() ? "-" : r.arm);
    out.rows.push_back(std::move(line));
  }
  out.caption = t.caption + ".";
  for (const std::string& note : t.notes) out.caption += " " + note;
  out.label = fmt::format("{}-{}", t.form->paper, t.form->table);
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
                      {"budget", cell.budget},
                      {"unequal_budget", published ? Json(nullptr) : Json(cell.unequal)},
                      {"definition", column.definition},
                      {"run", t.run.id}});
    }
  return list;
}

Json figures_of(const std::vector<PaperTable>& tables) {
  Json all = Json::array();
  for (const PaperTable& t : tables)
    for (Json& figure : figures_of(t)) all.push_back(std::move(figure));
  return all;
}

}  // namespace

Document document(const std::vector<PaperTable>& tables) {
  Document d{.name = "papers"};
  for (const PaperTable& t : tables) {
    d.heading(t.caption);
    d.table(table_of(t));
    for (const auto* list : {&t.notes, &t.details})
      for (const std::string& note : *list) d.note(note);
    d.note(definitions_text(t));
  }
  d.data = records(figures_of(tables));
  return d;
}

std::string to_json(const std::vector<PaperTable>& tables) {
  return figures_of(tables).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
