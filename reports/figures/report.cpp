#include "reports/figures/report.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "reports/figures/batches.h"
#include "reports/figures/row_builder.h"

namespace evalrun::reports {

using results::Row;

namespace {

constexpr const char* kAll = "all";

// What was asked for must exist wherever programs were judged at all.
void check_pass_k(const std::vector<ReportRow>& rows, const std::vector<int>& asked) {
  for (const ReportRow& r : rows)
    for (const auto& [name, q] : r.quality)
      for (const int k : asked)
        if (r.dataset != "all" && name == "pass@" + q.version && !q.pass_at.contains(k))
          throw base::usage_error(
              fmt::format("pass@{} of {} on {}: it needs {} samples of every problem, there are {}",
                          k, r.arm.label, r.dataset, k,
                          q.pass_at.empty() ? 0 : q.pass_at.rbegin()->first),
              fmt::format("measure with --samples {} and a temperature", k));
}

}  // namespace

Report build_report(const results::ResultStore& store, int64_t run_id,
                    const ReportOptions& options) {
  const RunData data = load_run(store, run_id, Faults::kLeaveOut, options.step_detail);
  const ArmInfo* control = control_of(data.arms, options.control);
  const Aggregates aggregates = load_aggregates(store, data, control, options.step_detail);
  Report report;
  if (control != nullptr) report.control = control->label;
  report.run = data.run;
  report.estimator = options.estimator;
  report.interval = options.interval;
  report.scope = options.scope;
  if (!options.pass_k.empty()) report.pass_k = options.pass_k;
  report.why = options.why;
  report.explain = options.explain;
  report.columns = options.columns;
  report.exclude_degenerate = options.exclude_degenerate;
  report.conditions = read_conditions(store, data);
  report.gpu_disturbances = aggregates.gpu.disturbances();
  if (options.parts) report.parts = speed_by_part(data, options.estimator);
  report.hidden_faults = data.generations.hidden_faults;
  report.other_machine = data.generations.other_machine;
  if (data.generations.counts.empty())
    throw base::data_error(
        store.path(), fmt::format("run {}", run_id),
        data.generations.hidden_faults > 0 ? "holds only generations with planted faults"
                                           : "has no generations yet",
        report.run.finished.empty() ? resume_text(report.run) : "measure first: evalrun run");
  // What was measured, in the order of the prompts.
  std::set<std::string> measured;
  for (const auto& [key, count] : data.generations.counts) measured.insert(key.second);
  std::vector<std::string> tasks;
  for (const PromptInfo& p : data.prompts)
    if (measured.contains(p.task) && std::find(tasks.begin(), tasks.end(), p.task) == tasks.end())
      tasks.push_back(p.task);
  std::vector<const ArmInfo*> arms;
  for (const ArmInfo& a : data.arms) arms.push_back(&a);
  std::stable_sort(arms.begin(), arms.end(), [](const ArmInfo* a, const ArmInfo* b) {
    return std::pair(a->batch, standing(*a)) < std::pair(b->batch, standing(*b));
  });
  const RowBuilder builder(data, aggregates, options);
  std::optional<BatchBuilder> batches;
  if (in_batches(data.arms)) batches.emplace(store, data, options);
  const auto add = [&](const std::string& name, const std::set<std::string>& of) {
    const size_t first = report.rows.size();
    for (const ArmInfo* arm : arms) {
      ReportRow row = builder.row(*arm, name, of);
      if (row.counts.generations > 0) report.rows.push_back(std::move(row));
    }
    const auto rows = std::span(report.rows).subspan(first);
    builder.score(rows, of);
    builder.rank(rows, of);
    if (batches) batches->add(rows, of);
  };
  for (const std::string& task : tasks) add(task, {task});
  if (tasks.size() > 1) add(kAll, measured);
  check_pass_k(report.rows, options.pass_k);
  return report;
}

int64_t require_run(const results::ResultStore& store, const std::string& name) {
  if (const auto id = store.find_run(name)) return *id;
  std::vector<std::string> known;
  store.query("SELECT id, label FROM run ORDER BY id DESC LIMIT 10", {}, [&](const Row& r) {
    known.push_back(r.text(1).empty() ? r.text(0) : fmt::format("{} ({})", r.text(0), r.text(1)));
    return true;
  });
  if (known.empty())
    throw base::data_error(store.path(), "", "holds no runs yet",
                           "measure first: evalrun run quick");
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  throw base::usage_error(fmt::format("no run '{}' in {}", name, store.path()),
                          fmt::format("newest runs, number (label): {}", list));
}

}  // namespace evalrun::reports
