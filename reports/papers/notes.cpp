#include "reports/papers/notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/format.h"
#include "reports/table/run_text.h"
#include "reports/table/training_overlap.h"

namespace evalrun::reports {

namespace {

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

std::string measured_note(const NoteSource& source, const PaperTable& table) {
  const auto of = [&](const auto& value) { return distinct(source.arms, value); };
  std::vector<std::string> prompts;
  for (const FormData& d : table.form->data)
    if (const auto found = source.prompts.find(d.label); found != source.prompts.end())
      prompts.push_back(fmt::format("{} {}", d.label, found->second));
  return fmt::format(
      "Measured: run {}{}, {} ({}), {}, {}, at most {}{}{}; prompts: {}.", table.run.id,
      table.run.label.empty() ? "" : fmt::format(" '{}'", table.run.label),
      of([](const ArmInfo& a) { return a.model; }), of([](const ArmInfo& a) { return a.dtype; }),
      of([&](const ArmInfo& a) { return engine_text(table.run, a); }),
      of([](const ArmInfo& a) { return sampling_text(a); }),
      of([](const ArmInfo& a) { return lengths_text(a); }),
      of([](const ArmInfo& a) { return templates_text(a); }),
      source.arms.front()->kv_cache ? "" : ", no keys and values kept", fmt::join(prompts, ", "));
}

// Under a table that compares adapters; elsewhere, where methods have trainings of their own, among
// the details.
void add_training_notes(const NoteSource& source, PaperTable& table) {
  const ComparedBudgets& budgets = source.budgets;
  const bool compares_adapters = table.form->equal_budgets;
  const auto stated = [](const std::optional<TrainingBudget>& budget) {
    return budget ? budget_text(*budget) : std::string("not stated by the adapter");
  };
  if (budgets.adapters == 0) return;
  if (budgets.unequal.empty()) {
    (compares_adapters ? table.notes : table.details)
        .push_back(fmt::format("Training{}: {}.", budgets.adapters > 1 ? " of every adapter" : "",
                               stated(budgets.common)));
    return;
  }
  std::vector<std::string> list;
  if (compares_adapters) {
    for (const UnequalArm& arm : budgets.unequal)
      list.push_back(fmt::format("{}: {}", arm.label, arm.what));
    table.notes.push_back(
        fmt::format("^: not trained like the others ({}). {}.",
                    budgets.common ? budget_text(*budgets.common) : "of none is the budget known",
                    fmt::join(list, "; ")));
    return;
  }
  for (const ArmInfo* arm : source.arms)
    if (has_adapter(*arm))
      list.push_back(fmt::format("{}: {}", arm->label, stated(training_budget(*arm))));
  table.details.push_back(fmt::format("Training, not equal: {}.", fmt::join(list, "; ")));
}

// Which figures are published, on which hardware, and what is doubtful about them.
void add_published_notes(const Claims& claims, PaperTable& table) {
  const std::string file = claims.file.substr(claims.file.find_last_of('/') + 1);
  std::set<std::string> hardware, findings;
  std::map<std::string, int> tags;
  size_t published = 0;
  for (const PaperRow& r : table.rows)
    for (const PaperCell& c : r.cells) {
      if (c.printed.empty()) continue;
      ++published;
      if (!c.hardware.empty()) hardware.insert(c.hardware);
      findings.insert(c.findings.begin(), c.findings.end());
      for (const std::string& tag : c.tags) ++tags[tag];
    }
  if (claims.file.empty())
    table.notes.push_back(
        "Published figures are no part of evalrun: --claims FILE sets them beside these.");
  else if (published == 0)
    table.notes.push_back(
        fmt::format("{} has no figures of {}, {}.", file, table.form->paper, table.form->place));
  else
    table.notes.push_back(fmt::format(
        "Published: {} of {}{}. Other models, hardware and programs: a difference is no verdict on "
        "either.",
        table.form->place, file,
        hardware.empty() ? "" : fmt::format(", on {}", fmt::join(hardware, ", "))));
  if (!findings.empty())
    table.notes.push_back(
        fmt::format("!: does not fit other figures of its paper (evalrun audit: {}).",
                    fmt::join(findings, ", ")));
  std::vector<std::string> counted;
  for (const auto& [tag, n] : tags) counted.push_back(fmt::format("{} ({})", tag, n));
  if (!counted.empty())
    table.details.push_back(fmt::format("Tags of {}, {} published figures: {}.", file, published,
                                        fmt::join(counted, ", ")));
}

std::string columns_detail(const PaperTable& table) {
  std::vector<std::string> columns;
  for (const PaperColumn& c : table.columns) {
    const FormMetric& m = c.metric;
    const std::string text = fmt::format(
        "{} = {}{}", m.label,
        m.measured == "pass" ? table.form->decoding == "greedy" ? "pass@1" : "pass@10" : m.measured,
        m.unit == "percent" ? " in percent"
        : m.unit == "gain"  ? " in percent above 1"
                            : "");
    if (std::find(columns.begin(), columns.end(), text) == columns.end()) columns.push_back(text);
  }
  return fmt::format("Columns: {}.", fmt::join(columns, ", "));
}

std::string arms_detail(const NoteSource& source, const PaperTable& table) {
  std::vector<std::string> arms;
  for (size_t m = 0; m < table.form->methods.size(); ++m)
    if (const ArmInfo* arm = source.first_of_methods[m]; arm != nullptr)
      arms.push_back(fmt::format("{} = {}{}", table.form->methods[m].label, arm->label,
                                 arm->lossy() ? " (not lossless)" : ""));
  return fmt::format("Arms: {}.", fmt::join(arms, ", "));
}

bool has_indicative_cell(const PaperTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(), [](const PaperRow& r) {
    return std::any_of(r.cells.begin(), r.cells.end(),
                       [](const PaperCell& c) { return c.interval && c.n_eff < kIndicativeBelow; });
  });
}

}  // namespace

void add_paper_notes(const NoteSource& source, PaperTable& table) {
  const std::string& control = table.form->control;
  table.notes.push_back(measured_note(source, table));
  if (table.run.finished.empty()) table.notes.push_back(unfinished_remark(table.run));
  add_training_notes(source, table);
  if (const std::string note = overlap_sentence(source.compared); !note.empty())
    table.notes.push_back(note);
  if (!control.empty())
    table.notes.push_back(
        fmt::format("Win, tie and lose: conversations that the judge of MT-Bench grades higher "
                    "than, like or lower than those of {}, each graded alone (evalrun judge RUN "
                    "RUN asks in pairs, in both orders).",
                    control));
  add_published_notes(source.claims, table);
  table.details.push_back(columns_detail(table));
  if (table.form->methods_as_columns()) table.details.push_back(arms_detail(source, table));
  if (has_indicative_cell(table))
    table.notes.push_back(fmt::format("*: interval {}.", kIndicative));
}

}  // namespace evalrun::reports
