#include "reports/papers/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "reports/claims/published_vs_measured.h"
#include "reports/papers/cells.h"
#include "reports/papers/table_builder.h"
#include "results/regroup.h"

namespace evalrun::reports {

namespace {

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
      PaperTableBuilder builder(*form, model, controlled ? *controlled : reports, claims, findings);
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
