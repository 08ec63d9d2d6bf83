#include "reports/papers/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "reports/claims/published_vs_measured.h"
#include "reports/data/parameters.h"
#include "reports/format.h"
#include "reports/papers/budgets.h"
#include "reports/papers/cells.h"
#include "reports/table/metric_glossary.h"
#include "reports/table/run_text.h"
#include "reports/table/training_overlap.h"
#include "results/regroup.h"

namespace evalrun::reports {

namespace {

// An arm that a method's patterns name, and its values of the swept parameters.
struct Entry {
  const ArmInfo* arm = nullptr;
  std::string swept, across;
};

bool less_number(const std::string& a, const std::string& b) {
  return std::strtod(a.c_str(), nullptr) < std::strtod(b.c_str(), nullptr);
}

class TableBuilder {
 public:
  TableBuilder(const PaperForm& form, std::string model, const std::vector<Report>& reports,
               const Claims& claims, const FindingsByLine& findings);
  // Nothing measured: nothing.
  std::optional<PaperTable> build();
  // Of the built table: the arms that were not trained like the others, and how. None where
  // adapters are not what the form compares.
  std::vector<std::string> unlike() const;
  void mark_unlike(PaperTable& table) const;

 private:
  // Where the figures of a row, or of a column, come from.
  struct Source {
    size_t method = 0, data = 0;
    const Entry* entry = nullptr;
    std::string swept, across;
  };
  std::vector<Entry> entries_of(const FormMethod& method) const;
  bool with_claims() const { return !claims_.file.empty(); }
  void add_columns();
  void push_column(const PaperColumn& column, const Source& source);
  std::vector<std::string> across_values() const;
  void add_method_rows();
  void add_measured_rows(size_t m);
  // Of the swept parameter, as far as figures are published for them.
  std::vector<std::string> published_values(const FormMethod& method) const;
  void add_data_rows();
  // A published row without a figure is none of the paper's.
  void add_row(PaperRow row, const Source& source);
  // Published columns without a figure.
  void drop_empty_columns();
  const Entry* entry_of(const Source& s) const;
  PaperCell measured_cell(const Source& s, const FormMetric& metric) const;
  static bool is_data(const std::string& dataset, const FormData& wanted);
  bool is_claim(const Claim& c, const std::string& model, const std::string& method,
                const FormData& data, const FormMetric& metric) const;
  PaperCell published_cell(const std::string& model, const Source& s,
                           const FormMetric& metric) const;
  void note_measured(const Source& s, const PaperCell& cell);
  void compare_training();
  void add_notes();
  void add_training_notes();
  void add_overlap_note();

  const PaperForm& form_;
  const std::vector<Report>& reports_;
  const Claims& claims_;
  const FindingsByLine& findings_;
  PaperTable table_;
  std::vector<std::vector<Entry>> entries_;  // by method
  std::vector<Source> columns_;
  std::map<std::string, int64_t> prompts_;  // by data set
  std::vector<const ArmInfo*> arms_;        // that have a cell
  ComparedBudgets budgets_;                 // of these, and of the control
};

TableBuilder::TableBuilder(const PaperForm& form, std::string model,
                           const std::vector<Report>& reports, const Claims& claims,
                           const FindingsByLine& findings)
    : form_(form), reports_(reports), claims_(claims), findings_(findings) {
  table_.form = &form;
  table_.run = reports.front().run;
  table_.model = std::move(model);
  table_.caption = fmt::format("{}, {}: {}", form.title, form.place, form.caption);
  for (const FormMethod& m : form.methods) entries_.push_back(entries_of(m));
}

std::optional<PaperTable> TableBuilder::build() {
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

std::vector<Entry> TableBuilder::entries_of(const FormMethod& method) const {
  std::vector<Entry> entries;
  std::set<int64_t> known;
  for (const std::string& pattern : method.arms)
    for (const ReportRow& r : reports_.front().rows) {
      const ArmInfo& arm = r.arm;
      if (arm.role == "aa" || model_of(arm) != table_.model || decoding_of(arm) != form_.decoding ||
          !names_arm(pattern, arm.label) || !known.insert(arm.id).second)
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

void TableBuilder::add_columns() {
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

void TableBuilder::push_column(const PaperColumn& column, const Source& source) {
  table_.columns.push_back(column);
  columns_.push_back(source);
}

std::vector<std::string> TableBuilder::across_values() const {
  std::vector<std::string> values;
  for (const auto& entries : entries_)
    for (const Entry& e : entries)
      if (std::find(values.begin(), values.end(), e.across) == values.end())
        values.push_back(e.across);
  std::sort(values.begin(), values.end(), less_number);
  return values;
}

void TableBuilder::add_method_rows() {
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

void TableBuilder::add_measured_rows(size_t m) {
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

std::vector<std::string> TableBuilder::published_values(const FormMethod& method) const {
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

void TableBuilder::add_data_rows() {
  for (const size_t d : form_.rows) {
    Source source;
    source.data = d;
    add_row({true, table_.model, form_.data[d].label, "", false, {}}, source);
    if (!with_claims()) continue;
    for (const std::string& model : form_.models)
      add_row({false, model, form_.data[d].label, "", false, {}}, source);
  }
}

void TableBuilder::add_row(PaperRow row, const Source& source) {
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

void TableBuilder::drop_empty_columns() {
  for (size_t c = table_.columns.size(); c-- > 0;) {
    const bool used = std::any_of(table_.rows.begin(), table_.rows.end(),
                                  [&](const PaperRow& r) { return r.cells[c].value; });
    if (used || table_.columns[c].model.empty()) continue;
    table_.columns.erase(table_.columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (PaperRow& r : table_.rows) r.cells.erase(r.cells.begin() + static_cast<std::ptrdiff_t>(c));
  }
}

const Entry* TableBuilder::entry_of(const Source& s) const {
  if (s.entry != nullptr && form_.across.empty()) return s.entry;
  if (!form_.across.empty()) {
    for (const Entry& e : entries_[s.method])
      if (e.swept == s.swept && e.across == s.across) return &e;
    return nullptr;
  }
  if (!form_.methods_as_columns() || entries_[s.method].empty()) return nullptr;
  return &entries_[s.method].front();  // the one the form names first
}

PaperCell TableBuilder::measured_cell(const Source& s, const FormMetric& metric) const {
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

bool TableBuilder::is_data(const std::string& dataset, const FormData& wanted) {
  const PublishedData data = published_data(dataset);
  return data.single && data.dataset == wanted.dataset && data.part == wanted.category;
}

bool TableBuilder::is_claim(const Claim& c, const std::string& model, const std::string& method,
                            const FormData& data, const FormMetric& metric) const {
  const bool category = data.category.empty() ? c.category.empty() || c.category == "overall"
                                              : c.category == data.category;
  return c.paper == form_.paper && c.place == form_.place && c.model == model &&
         c.method == method && c.dataset == data.dataset && category &&
         c.metric == metric.published && c.value && c.measured();
}

PaperCell TableBuilder::published_cell(const std::string& model, const Source& s,
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

void TableBuilder::note_measured(const Source& s, const PaperCell& cell) {
  int64_t& prompts = prompts_[form_.data[s.data].label];
  prompts = std::max(prompts, cell.n_prompts);
  const ArmInfo* arm = entry_of(s)->arm;
  if (std::find(arms_.begin(), arms_.end(), arm) == arms_.end()) arms_.push_back(arm);
}

void TableBuilder::compare_training() {
  std::vector<const ArmInfo*> arms = arms_;
  for (const ReportRow& r : reports_.front().rows)
    if (!form_.control.empty() && r.arm.label == form_.control &&
        std::none_of(arms.begin(), arms.end(),
                     [&](const ArmInfo* arm) { return arm->id == r.arm.id; }))
      arms.push_back(&r.arm);
  const auto model = table_.run.environment.find("model_hash");
  budgets_ = compare_budgets(arms, model == table_.run.environment.end() ? "" : model->second);
}

std::vector<std::string> TableBuilder::unlike() const {
  std::vector<std::string> list;
  if (form_.equal_budgets)
    for (const UnequalArm& arm : budgets_.unequal)
      list.push_back(fmt::format("{}: {}", arm.label, arm.what));
  return list;
}

void TableBuilder::mark_unlike(PaperTable& table) const {
  for (PaperRow& row : table.rows)
    for (PaperCell& cell : row.cells)
      cell.unequal =
          std::any_of(budgets_.unequal.begin(), budgets_.unequal.end(), [&](const UnequalArm& arm) {
            // Every figure is against the control.
            return cell.arm != 0 && (arm.arm == cell.arm || arm.label == form_.control);
          });
}

// Under a table that compares adapters; elsewhere, where methods have trainings of their own, among
// the details.
void TableBuilder::add_training_notes() {
  const auto stated = [](const std::optional<TrainingBudget>& budget) {
    return budget ? budget_text(*budget) : std::string("not stated by the adapter");
  };
  if (budgets_.adapters == 0) return;
  if (budgets_.unequal.empty()) {
    (form_.equal_budgets ? table_.notes : table_.details)
        .push_back(fmt::format("Training{}: {}.", budgets_.adapters > 1 ? " of every adapter" : "",
                               stated(budgets_.common)));
    return;
  }
  std::vector<std::string> list;
  if (form_.equal_budgets) {
    for (const UnequalArm& arm : budgets_.unequal)
      list.push_back(fmt::format("{}: {}", arm.label, arm.what));
    table_.notes.push_back(
        fmt::format("^: not trained like the others ({}). {}.",
                    budgets_.common ? budget_text(*budgets_.common) : "of none is the budget known",
                    fmt::join(list, "; ")));
    return;
  }
  for (const ArmInfo* arm : arms_)
    if (has_adapter(*arm))
      list.push_back(fmt::format("{}: {}", arm->label, stated(training_budget(*arm))));
  table_.details.push_back(fmt::format("Training, not equal: {}.", fmt::join(list, "; ")));
}

// Of the arms in the table, and of the one that they are against.
void TableBuilder::add_overlap_note() {
  std::vector<const ArmInfo*> arms = arms_;
  for (const ReportRow& r : reports_.front().rows)
    if (!form_.control.empty() && r.arm.label == form_.control) arms.push_back(&r.arm);
  if (const std::string note = overlap_sentence(arms); !note.empty()) table_.notes.push_back(note);
}

// What an arm has set for single tasks: "cip 512, xsum 256" for "max_new.".
std::string setting_by_task(const ArmInfo& arm, const std::string& prefix) {
  std::vector<std::string> list;
  const nlohmann::json settings = nlohmann::json::parse(arm.settings, nullptr, false);
  if (!settings.is_object()) return "";
  for (const auto& item : settings.items())
    if (item.key().starts_with(prefix) && item.value().is_string())
      list.push_back(item.key().substr(prefix.size()) + " " + item.value().get<std::string>());
  return fmt::format("{}", fmt::join(list, ", "));
}

std::string lengths_text(const ArmInfo& arm) {
  const std::string shorter = setting_by_task(arm, "max_new.");
  return std::to_string(arm.max_new) + " new tokens" +
         (shorter.empty() ? "" : " (" + shorter + ")");
}

std::string templates_text(const ArmInfo& arm) {
  const std::string list = setting_by_task(arm, "chat_template.");
  return list.empty() ? "" : ", chat templates: " + list;
}

template <typename F>
std::string distinct(const std::vector<const ArmInfo*>& arms, const F& value) {
  std::vector<std::string> seen;
  for (const ArmInfo* a : arms)
    if (const std::string v = value(*a); std::find(seen.begin(), seen.end(), v) == seen.end())
      seen.push_back(v);
  return fmt::format("{}", fmt::join(seen, " / "));
}

void TableBuilder::add_notes() {
  const auto of = [&](const auto& value) { return distinct(arms_, value); };
  std::vector<std::string> prompts;
  for (const FormData& d : form_.data)
    if (const auto found = prompts_.find(d.label); found != prompts_.end())
      prompts.push_back(fmt::format("{} {}", d.label, found->second));
  table_.notes.push_back(fmt::format(
      "Measured: run {}{}, {} ({}), {}, {}, at most {}{}{}; prompts: {}.", table_.run.id,
      table_.run.label.empty() ? "" : fmt::format(" '{}'", table_.run.label),
      of([](const ArmInfo& a) { return a.model; }), of([](const ArmInfo& a) { return a.dtype; }),
      of([&](const ArmInfo& a) { return engine_text(table_.run, a); }),
      of([](const ArmInfo& a) { return sampling_text(a); }),
      of([](const ArmInfo& a) { return lengths_text(a); }),
      of([](const ArmInfo& a) { return templates_text(a); }),
      arms_.front()->kv_cache ? "" : ", no keys and values kept", fmt::join(prompts, ", ")));

  add_training_notes();
  add_overlap_note();
  if (!form_.control.empty())
    table_.notes.push_back(
        fmt::format("Win, tie and lose: conversations that the judge of MT-Bench grades higher "
                    "than, like or lower than those of {}, each graded alone (evalrun judge RUN "
                    "RUN asks in pairs, in both orders).",
                    form_.control));
  const std::string file = claims_.file.substr(claims_.file.find_last_of('/') + 1);
  std::set<std::string> hardware, findings;
  std::map<std::string, int> tags;
  size_t published = 0;
  bool indicative = false;
  for (const PaperRow& r : table_.rows)
    for (const PaperCell& c : r.cells) {
      if (c.interval && c.n_eff < kIndicativeBelow) indicative = true;
      if (c.printed.empty()) continue;
      ++published;
      if (!c.hardware.empty()) hardware.insert(c.hardware);
      findings.insert(c.findings.begin(), c.findings.end());
      for (const std::string& tag : c.tags) ++tags[tag];
    }
  if (!with_claims())
    table_.notes.push_back(
        "Published figures are no part of evalrun: --claims FILE sets them beside these.");
  else if (published == 0)
    table_.notes.push_back(
        fmt::format("{} has no figures of {}, {}.", file, form_.paper, form_.place));
  else
    table_.notes.push_back(fmt::format(
        "Published: {} of {}{}. Other models, hardware and programs: a difference is no verdict on "
        "either.",
        form_.place, file,
        hardware.empty() ? "" : fmt::format(", on {}", fmt::join(hardware, ", "))));
  if (!findings.empty())
    table_.notes.push_back(
        fmt::format("!: does not fit other figures of its paper (evalrun audit: {}).",
                    fmt::join(findings, ", ")));
  std::vector<std::string> counted;
  for (const auto& [tag, n] : tags) counted.push_back(fmt::format("{} ({})", tag, n));
  if (!counted.empty())
    table_.details.push_back(fmt::format("Tags of {}, {} published figures: {}.", file, published,
                                         fmt::join(counted, ", ")));

  std::vector<std::string> columns;
  for (const PaperColumn& c : table_.columns) {
    const FormMetric& m = c.metric;
    const std::string text = fmt::format(
        "{} = {}{}", m.label,
        m.measured == "pass" ? form_.decoding == "greedy" ? "pass@1" : "pass@10" : m.measured,
        m.unit == "percent" ? " in percent"
        : m.unit == "gain"  ? " in percent above 1"
                            : "");
    if (std::find(columns.begin(), columns.end(), text) == columns.end()) columns.push_back(text);
  }
  table_.details.push_back(fmt::format("Columns: {}.", fmt::join(columns, ", ")));
  if (form_.methods_as_columns()) {
    std::vector<std::string> arms;
    for (size_t m = 0; m < form_.methods.size(); ++m)
      if (!entries_[m].empty())
        arms.push_back(fmt::format("{} = {}{}", form_.methods[m].label,
                                   entries_[m].front().arm->label,
                                   entries_[m].front().arm->lossy() ? " (not lossless)" : ""));
    table_.details.push_back(fmt::format("Arms: {}.", fmt::join(arms, ", ")));
  }
  if (indicative) table_.notes.push_back(fmt::format("*: interval {}.", kIndicative));
}

// Some forms ask for parts of what the run has whole: its reports by category and by language, too.
std::vector<Report> reports_of(const results::ResultStore& store, int64_t run_id,
                               const ReportOptions& options,
                               const std::vector<const PaperForm*>& forms) {
  std::vector<Report> reports = {build_report(store, run_id, options)};
  std::set<std::string> whole;
  for (const ReportRow& r : reports.front().rows)
    if (const PublishedData data = published_data(r.dataset); data.part.empty())
      whole.insert(data.dataset);
  const bool parts = std::any_of(forms.begin(), forms.end(), [&](const PaperForm* form) {
    return std::any_of(form->columns.begin(), form->columns.end(), [&](const FormColumn& c) {
      if (form->methods_as_columns()) return false;
      const FormData& data = form->data[c.at];
      return !data.category.empty() && whole.contains(data.dataset);
    });
  });
  if (!parts) return reports;
  for (const results::Axis axis : {results::Axis::kCategory, results::Axis::kLanguage}) {
    const auto regrouped = results::regrouped(store, {axis});
    reports.push_back(build_report(*regrouped, run_id, options));
  }
  return reports;
}

// The same for a form with a control that the run has: scores are against that arm.
std::optional<std::vector<Report>> reports_with_control(const results::ResultStore& store,
                                                        int64_t run_id, ReportOptions options,
                                                        const PaperForm& form,
                                                        const Report& without) {
  const auto is_control = [&](const ReportRow& r) { return r.arm.label == form.control; };
  if (form.control.empty() || std::none_of(without.rows.begin(), without.rows.end(), is_control))
    return std::nullopt;
  options.control = form.control;
  return reports_of(store, run_id, options, {&form});
}

}  // namespace

std::vector<PaperTable> paper_tables(const results::ResultStore& store, int64_t run_id,
                                     const ReportOptions& options,
                                     const std::vector<const PaperForm*>& forms,
                                     const Claims& claims, UnequalBudgets unequal,
                                     std::vector<std::string>* left_out) {
  const std::vector<Report> reports = reports_of(store, run_id, options, forms);
  const FindingsByLine findings = findings_by_line(claims);
  std::vector<std::string> models;
  for (const ReportRow& r : reports.front().rows)
    if (std::find(models.begin(), models.end(), model_of(r.arm)) == models.end())
      models.push_back(model_of(r.arm));
  std::vector<PaperTable> tables;
  std::vector<std::string> refused;             // forms, as a sentence begins
  std::vector<std::vector<std::string>> lists;  // their arms
  std::set<std::string> names, suites, needed, papers;
  for (const PaperForm* form : forms) {
    const auto controlled = reports_with_control(store, run_id, options, *form, reports.front());
    for (const std::string& model : models) {
      TableBuilder builder(*form, model, controlled ? *controlled : reports, claims, findings);
      auto table = builder.build();
      if (!table) continue;
      const std::vector<std::string> unlike = builder.unlike();
      if (!unlike.empty() && unequal != UnequalBudgets::kMark) {
        refused.push_back(form->name() +
                          " compares adapters, and these were not trained like the others:");
        lists.push_back(unlike);
        papers.insert(form->paper);
        continue;
      }
      if (!unlike.empty()) builder.mark_unlike(*table);
      tables.push_back(std::move(*table));
    }
    names.insert(form->name());
    suites.insert(form->suites.begin(), form->suites.end());
    for (const FormMethod& m : form->methods)
      for (const std::string& arm : m.arms)
        needed.insert(form->decoding == "greedy" ? arm : arm + " by sampling");
  }
  if (!refused.empty() && (tables.empty() || unequal == UnequalBudgets::kRefuse)) {
    std::string all;
    for (size_t i = 0; i < refused.size(); ++i)
      all += fmt::format("{}{}\n  {}", i > 0 ? "\n" : "", refused[i], fmt::join(lists[i], "\n  "));
    throw base::usage_error(
        all,
        fmt::format("train them alike: scripts/train-ablations {} --out DIR; or print the table "
                    "with --unequal-budgets, which marks their cells",
                    fmt::join(papers, " or ")));
  }
  if (tables.empty())
    throw base::usage_error(
        fmt::format("run {} has nothing for {}", run_id, fmt::join(names, ", ")),
        fmt::format("measure it with evalrun run {}{}", fmt::join(suites, " or "),
                    forms.size() > 1 ? std::string()
                                     : fmt::format("; it needs one of {} on the paper's data sets",
                                                   fmt::join(needed, ", "))));
  for (size_t i = 0; i < refused.size(); ++i) {
    const std::string why = fmt::format("Left out: {} {}.", refused[i], fmt::join(lists[i], "; "));
    tables.back().details.push_back(why);
    if (left_out) left_out->push_back(why);
  }
  return tables;
}

}  // namespace evalrun::reports
