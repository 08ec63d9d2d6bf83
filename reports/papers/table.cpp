#include "reports/papers/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "reports/claims/published_vs_measured.h"
#include "reports/papers/cells.h"
#include "reports/papers/table_builder.h"
#include "results/queries.h"
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

// Whether a run is to measure an arm of the form on a data set of it, whatever it has so far.
bool is_planned(const results::ResultStore& store, int64_t run_id, const PaperForm& form) {
  const std::vector<results::ArmRow> arms = results::arms(store, run_id);
  const auto names = [&](const std::string& pattern) {
    return std::any_of(arms.begin(), arms.end(), [&](const results::ArmRow& arm) {
      return arm.record.role == "method" && names_arm(pattern, arm.record.label) &&
             (arm.record.temperature == 0) == (form.decoding == "greedy");
    });
  };
  const auto has_arm = [&](const FormMethod& m) {
    return std::any_of(m.arms.begin(), m.arms.end(), names);
  };
  std::set<std::string> wanted;
  for (const size_t d : form.rows) wanted.insert(form.data[d].dataset);
  if (!form.methods_as_columns())
    for (const FormColumn& c : form.columns) wanted.insert(form.data[c.at].dataset);
  const std::vector<std::string> tasks = results::tasks(store, run_id);
  return std::any_of(form.methods.begin(), form.methods.end(), has_arm) &&
         std::any_of(tasks.begin(), tasks.end(), [&](const std::string& task) {
           return wanted.contains(published_data(task).dataset);
         });
}

// No table could be made: the run has not come to it yet, or never will.
[[noreturn]] void refuse_empty(const results::ResultStore& store, const RunInfo& run,
                               const std::vector<const PaperForm*>& forms) {
  std::set<std::string> names, suites, needed;
  bool planned = false;
  for (const PaperForm* form : forms) {
    names.insert(form->name());
    suites.insert(form->suites.begin(), form->suites.end());
    for (const FormMethod& m : form->methods)
      for (const std::string& arm : m.arms)
        needed.insert(form->decoding == "greedy" ? arm : arm + " by sampling");
    planned = planned || (run.finished.empty() && is_planned(store, run.id, *form));
  }
  if (planned)
    throw base::usage_error(fmt::format("{} is unfinished: {}, and these do not suffice for {}",
                                        run_title(run), stored_text(run), fmt::join(names, ", ")),
                            resume_text(run));
  throw base::usage_error(
      fmt::format("run {} has nothing for {}", run.id, fmt::join(names, ", ")),
      fmt::format("measure it with evalrun run {}{}", fmt::join(suites, " or "),
                  forms.size() > 1 ? std::string()
                                   : fmt::format("; it needs one of {} on the paper's data sets",
                                                 fmt::join(needed, ", "))));
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
  std::set<std::string> papers;
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
  if (tables.empty()) refuse_empty(store, reports.front().run, forms);
  for (size_t i = 0; i < refused.size(); ++i) {
    const std::string why = fmt::format("Left out: {} {}.", refused[i], fmt::join(lists[i], "; "));
    tables.back().details.push_back(why);
    if (left_out) left_out->push_back(why);
  }
  return tables;
}

}  // namespace evalrun::reports
