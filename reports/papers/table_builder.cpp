#include "reports/papers/table_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "reports/data/parameters.h"
#include "reports/papers/cells.h"
#include "reports/papers/notes.h"
#include "reports/table/metric_glossary.h"

namespace evalrun::reports {

namespace {

bool less_number(const std::string& a, const std::string& b) {
  return std::strtod(a.c_str(), nullptr) < std::strtod(b.c_str(), nullptr);
}

}  // namespace

PaperTableBuilder::PaperTableBuilder(const PaperForm& form, std::string model,
                                     const std::vector<Report>& reports, const Claims& claims,
                                     const FindingsByLine& findings)
    : form_(form), reports_(reports), claims_(claims), findings_(findings) {
  table_.form = &form;
  table_.run = reports.front().run;
  table_.model = std::move(model);
  table_.caption = fmt::format("{}, {}: {}", form.title, form.place, form.caption);
  for (const FormMethod& m : form.methods) entries_.push_back(entries_of(m));
}

std::optional<PaperTable> PaperTableBuilder::build() {
  add_columns();
  form_.methods_as_columns() ? add_data_rows() : add_method_rows();
  drop_empty_columns();
  // One point is no curve.
  const bool curve = std::any_of(form_.methods.begin(), form_.methods.end(),
                                 [](const FormMethod& m) { return !m.sweep.empty(); });
  if (arms_.size() < (curve ? 2 : 1)) return std::nullopt;
  compare_training();
  add_notes();
  return std::move(table_);
}

std::vector<PaperTableBuilder::Entry> PaperTableBuilder::entries_of(
    const FormMethod& method) const {
  std::vector<Entry> entries;
  std::set<int64_t> known;
  for (const std::string& pattern : method.arms)
    for (const ReportRow& r : reports_.front().rows) {
      const ArmInfo& arm = r.arm;
      // What papers print is batch 1.
      if (arm.role == "aa" || arm.batch > 1 || model_of(arm) != table_.model ||
          decoding_of(arm) != form_.decoding || !names_arm(pattern, arm.label) ||
          !known.insert(arm.id).second)
        continue;
      const auto parameters = parse_parameters(arm.params);
      const auto value = [&](const std::string& name) {
        const auto found = parameters.find(name);
        return found == parameters.end() ? "" : found->second;
      };
      entries.push_back({&arm, value(method.sweep), value(form_.across)});
    }
  if (!method.sweep.empty())
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return less_number(a.swept, b.swept); });
  return entries;
}

void PaperTableBuilder::add_columns() {
  for (const FormColumn& c : form_.columns)
    for (const FormMetric& metric : c.metrics) {
      Source source;
      PaperColumn column;
      column.metric = metric;
      column.label = metric.label;
      column.definition = definition_of(metric.measured);
      (form_.methods_as_columns() ? source.method : source.data) = c.at;
      column.group =
          form_.methods_as_columns() ? form_.methods[c.at].label : form_.data[c.at].label;
      if (!form_.across.empty()) {
        for (const std::string& value : across_values()) {
          source.across = value;
          column.label = fmt::format("{} = {}", form_.across, value);
          push_column(column, source);
        }
        continue;
      }
      push_column(column, source);
      if (!form_.models_as_columns || !with_claims()) continue;
      for (const std::string& model : form_.models) {
        column.model = model;
        push_column(column, source);
      }
    }
}

void PaperTableBuilder::push_column(const PaperColumn& column, const Source& source) {
  table_.columns.push_back(column);
  columns_.push_back(source);
}

std::vector<std::string> PaperTableBuilder::across_values() const {
  std::vector<std::string> values;
  for (const auto& entries : entries_)
    for (const Entry& e : entries)
      if (std::find(values.begin(), values.end(), e.across) == values.end())
        values.push_back(e.across);
  std::sort(values.begin(), values.end(), less_number);
  return values;
}

void PaperTableBuilder::add_method_rows() {
  for (size_t m = 0; m < form_.methods.size(); ++m) add_measured_rows(m);
  std::stable_partition(table_.rows.begin(), table_.rows.end(),
                        [](const PaperRow& r) { return !r.lossy; });
  if (form_.models_as_columns || !with_claims()) return;
  for (const std::string& model : form_.models)
    for (size_t m = 0; m < form_.methods.size(); ++m) {
      PaperRow row{false, model, form_.methods[m].label, "", false, {}};
      Source source;
      source.method = m;
      add_row(std::move(row), source);
    }
}

void PaperTableBuilder::add_measured_rows(size_t m) {
  const FormMethod& method = form_.methods[m];
  Source source;
  source.method = m;
  const auto add = [&](const Entry* entry) {
    PaperRow row{true,
                 table_.model,
                 method.label,
                 entry ? entry->arm->label : "",
                 entry && entry->arm->lossy(),
                 {}};
    source.entry = entry;
    if (!method.sweep.empty())
      row.label = fmt::format("{}{} = {}", form_.methods.size() > 1 ? method.label + ", " : "",
                              method.sweep, source.swept);
    add_row(std::move(row), source);
  };
  if (method.sweep.empty()) {
    for (const Entry& e : entries_[m]) add(&e);
    if (entries_[m].empty()) add(nullptr);
    return;
  }
  std::vector<std::string> values = published_values(method);
  for (const Entry& e : entries_[m])
    if (std::find(values.begin(), values.end(), e.swept) == values.end()) values.push_back(e.swept);
  std::sort(values.begin(), values.end(), less_number);
  for (const std::string& value : values) {
    source.swept = value;
    const auto found = std::find_if(entries_[m].begin(), entries_[m].end(),
                                    [&](const Entry& e) { return e.swept == value; });
    add(found == entries_[m].end() ? nullptr : &*found);
  }
}

std::vector<std::string> PaperTableBuilder::published_values(const FormMethod& method) const {
  std::vector<std::string> values;
  for (const auto& [name, wanted] : method.config)
    for (const Claim& c : claims_.rows)
      if (wanted == "*" && c.paper == form_.paper && c.place == form_.place && c.value)
        if (const auto value = c.number(name);
            value &&
            std::find(values.begin(), values.end(), std::to_string(*value)) == values.end())
          values.push_back(std::to_string(*value));
  return values;
}

void PaperTableBuilder::add_data_rows() {
  for (const size_t d : form_.rows) {
    Source source;
    source.data = d;
    add_row({true, table_.model, form_.data[d].label, "", false, {}}, source);
    if (!with_claims()) continue;
    for (const std::string& model : form_.models)
      add_row({false, model, form_.data[d].label, "", false, {}}, source);
  }
}

void PaperTableBuilder::add_row(PaperRow row, const Source& source) {
  bool any = false;
  for (size_t c = 0; c < table_.columns.size(); ++c) {
    const PaperColumn& column = table_.columns[c];
    Source s = source;
    s.across = columns_[c].across;
    (form_.methods_as_columns() ? s.method : s.data) =
        form_.methods_as_columns() ? columns_[c].method : columns_[c].data;
    const bool measured = row.measured && column.model.empty();
    const std::string& model = column.model.empty() ? row.model : column.model;
    row.cells.push_back(measured ? measured_cell(s, column.metric)
                                 : published_cell(model, s, column.metric));
    any = any || row.cells.back().value;
    if (measured && row.cells.back().value) note_measured(s, row.cells.back());
  }
  if (any || row.measured) table_.rows.push_back(std::move(row));
}

void PaperTableBuilder::drop_empty_columns() {
  for (size_t c = table_.columns.size(); c-- > 0;) {
    const bool used = std::any_of(table_.rows.begin(), table_.rows.end(),
                                  [&](const PaperRow& r) { return r.cells[c].value; });
    if (used || table_.columns[c].model.empty()) continue;
    table_.columns.erase(table_.columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (PaperRow& r : table_.rows) r.cells.erase(r.cells.begin() + static_cast<std::ptrdiff_t>(c));
  }
}

const PaperTableBuilder::Entry* PaperTableBuilder::entry_of(const Source& s) const {
  if (s.entry != nullptr && form_.across.empty()) return s.entry;
  if (!form_.across.empty()) {
    for (const Entry& e : entries_[s.method])
      if (e.swept == s.swept && e.across == s.across) return &e;
    return nullptr;
  }
  if (!form_.methods_as_columns() || entries_[s.method].empty()) return nullptr;
  return &entries_[s.method].front();  // the one the form names first
}

PaperCell PaperTableBuilder::measured_cell(const Source& s, const FormMetric& metric) const {
  const Entry* entry = entry_of(s);
  if (entry == nullptr) return {};
  // A run without the control: what its scores are against is another arm.
  if (metric.against_control() && reports_.front().control != form_.control) return {};
  for (const Report& report : reports_)
    for (const ReportRow& r : report.rows) {
      if (r.arm.id != entry->arm->id || !is_data(r.dataset, form_.data[s.data])) continue;
      PaperCell cell = measured_value(r, metric);
      if (!cell.value) continue;
      cell.arm = r.arm.id;
      if (const auto budget = training_budget(r.arm)) cell.budget = budget_text(*budget);
      if (metric.beside_plain)
        for (const ReportRow& plain : report.rows)
          if (plain.dataset == r.dataset && plain.arm.label == r.reference)
            cell.plain = measured_value(plain, metric).value;
      return cell;
    }
  return {};
}

bool PaperTableBuilder::is_data(const std::string& dataset, const FormData& wanted) {
  const PublishedData data = published_data(dataset);
  return data.single && data.dataset == wanted.dataset && data.part == wanted.category;
}

bool PaperTableBuilder::is_claim(const Claim& c, const std::string& model,
                                 const std::string& method, const FormData& data,
                                 const FormMetric& metric) const {
  const bool category = data.category.empty() ? c.category.empty() || c.category == "overall"
                                              : c.category == data.category;
  return c.paper == form_.paper && c.place == form_.place && c.model == model &&
         c.method == method && c.dataset == data.dataset && category &&
         c.metric == metric.published && c.value && c.measured();
}

PaperCell PaperTableBuilder::published_cell(const std::string& model, const Source& s,
                                            const FormMetric& metric) const {
  const FormMethod& method = form_.methods[s.method];
  const FormData& data = form_.data[s.data];
  PaperCell cell;
  const auto configured = [&](const Claim& c) {
    return std::all_of(method.config.begin(), method.config.end(), [&](const auto& setting) {
      return c.option(setting.first) == (setting.second == "*" ? s.swept : setting.second);
    });
  };
  for (const Claim& c : claims_.rows) {
    if (is_claim(c, model, method.published, data, metric) && configured(c)) {
      if (!cell.value) cell.value = c.value, cell.sd = c.sd;
      cell.printed += (cell.printed.empty() ? "" : " / ") + c.value_text;
      cell.hardware = c.hardware;
      cell.tags.insert(cell.tags.end(), c.tags.begin(), c.tags.end());
      if (const auto found = findings_.find(c.line); found != findings_.end())
        cell.findings.insert(cell.findings.end(), found->second.begin(), found->second.end());
    }
    if (metric.beside_plain && is_claim(c, model, "ar", data, metric))
      cell.plain = c.value, cell.printed_plain = c.value_text;
  }
  return cell;
}

void PaperTableBuilder::note_measured(const Source& s, const PaperCell& cell) {
  int64_t& prompts = prompts_[form_.data[s.data].label];
  prompts = std::max(prompts, cell.n_prompts);
  const ArmInfo* arm = entry_of(s)->arm;
  if (std::find(arms_.begin(), arms_.end(), arm) == arms_.end()) arms_.push_back(arm);
}

void PaperTableBuilder::compare_training() {
  compared_ = arms_;
  for (const ReportRow& r : reports_.front().rows)
    if (!form_.control.empty() && r.arm.label == form_.control &&
        std::none_of(compared_.begin(), compared_.end(),
                     [&](const ArmInfo* arm) { return arm->id == r.arm.id; }))
      compared_.push_back(&r.arm);
  const auto model = table_.run.environment.find("model_hash");
  budgets_ = compare_budgets(compared_, model == table_.run.environment.end() ? "" : model->second);
}

std::vector<std::string> PaperTableBuilder::unlike() const {
  std::vector<std::string> list;
  if (form_.equal_budgets)
    for (const UnequalArm& arm : budgets_.unequal)
      list.push_back(fmt::format("{}: {}", arm.label, arm.what));
  return list;
}

void PaperTableBuilder::mark_unlike(PaperTable& table) const {
  for (PaperRow& row : table.rows)
    for (PaperCell& cell : row.cells)
      cell.unequal =
          std::any_of(budgets_.unequal.begin(), budgets_.unequal.end(), [&](const UnequalArm& arm) {
            // Every figure is against the control.
            return cell.arm != 0 && (arm.arm == cell.arm || arm.label == form_.control);
          });
}

void PaperTableBuilder::add_notes() {
  std::vector<const ArmInfo*> first_of_methods;
  for (const std::vector<Entry>& entries : entries_)
    first_of_methods.push_back(entries.empty() ? nullptr : entries.front().arm);
  add_paper_notes({.claims = claims_,
                   .arms = arms_,
                   .compared = compared_,
                   .first_of_methods = first_of_methods,
                   .prompts = prompts_,
                   .budgets = budgets_},
                  table_);
}

}  // namespace evalrun::reports
