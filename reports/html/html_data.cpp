#include "reports/html/html_data.h"

#include <algorithm>

#include "reports/format.h"
#include "reports/html/sweeps.h"
#include "reports/html/timeline.h"
#include "reports/json_values.h"
#include "reports/table/arm_tables.h"
#include "reports/table/flattered.h"
#include "reports/table/run_text.h"
#include "reports/table/training_overlap.h"

namespace evalrun::reports {

namespace {

// What the figures over batch sizes draw of an arm.
Json batch_of(const ReportRow& r) {
  const BatchFigures& b = *r.batch;
  const auto interval = b.tok_s ? b.tok_s->interval : std::nullopt;
  return {{"size", r.arm.batch},
          {"method", label_without_batch(r.arm)},
          {"tok_s_lo", json_lo(interval)},
          {"tok_s_hi", json_hi(interval)},
          {"tpot_ms", b.per_token_ms ? Json(b.per_token_ms->p50) : Json(nullptr)},
          {"front", b.on_front},
          {"predicted", b.predicted ? Json(b.predicted->value) : Json(nullptr)},
          {"crossover", b.crossover ? Json(b.crossover->text()) : Json(nullptr)}};
}

Json rows_of(const Report& report) {
  // Not all keys: a run of a hundred rows shall stay a small file.
  static constexpr const char* kDrawn[] = {
      "method",      "dataset",       "role",           "n_prompts",
      "speedup",     "speedup_lo",    "speedup_hi",     "tok_s",
      "tau",         "tau_lo",        "tau_hi",         "t_ratio",
      "residual",    "overhead",      "draft_share",    "alpha_cond",
      "alpha_joint", "speedup_n_eff", "first_token_ms", "training_overlap",
      "flatters"};
  const Json all = Json::parse(to_json(report));
  Json rows = Json::array();
  for (size_t i = 0; i < report.rows.size(); ++i) {
    Json row;
    for (const char* key : kDrawn) row[key] = all[i][key];
    for (const char* figure : {"request_speedup", "first_token_ratio"})
      for (const char* part : {"", "_lo", "_hi", "_n_eff"}) {
        const std::string key = std::string(figure) + part;
        row[key] = all[i][key];
      }
    row["lossy"] = report.rows[i].arm.lossy();
    row["synthetic"] = synthetic(report.rows[i].arm);
    row["quality"] = Json::object();
    for (const auto& [name, quality] : all[i]["quality"].items())
      for (const char* key : {"value", "lo", "hi", "n"}) row["quality"][name][key] = quality[key];
    if (report.rows[i].batch) {
      row["batch"] = batch_of(report.rows[i]);
      row["batch"]["lengths"] = all[i]["draft_lengths"];
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json sweeps_of(const Report& report) {
  std::vector<ArmInfo> arms;
  for (const ReportRow& r : report.rows)
    if (r.dataset == report.rows.back().dataset) arms.push_back(r.arm);
  Json list = Json::array();
  for (const Sweep& s : find_sweeps(arms)) {
    Json points = Json::array();
    for (const SweepPoint& p : s.points)
      points.push_back({{"label", p.label}, {"values", p.values}});
    list.push_back({{"method", s.method},
                    {"parameters", s.parameters},
                    {"fixed", s.fixed},
                    {"points", std::move(points)}});
  }
  return list;
}

Json parts_json(const Report& report) {
  Json list = Json::array();
  for (const PartSpeed& p : report.parts)
    list.push_back({{"method", p.arm},
                    {"dataset", p.dataset},
                    {"axis", p.axis},
                    {"part", p.part},
                    {"n_prompts", p.n_prompts},
                    {"speedup_n_eff", p.n_eff},
                    {"speedup", p.speedup},
                    {"speedup_lo", json_lo(p.interval)},
                    {"speedup_hi", json_hi(p.interval)},
                    {"tau", p.tau ? Json(*p.tau) : Json(nullptr)}});
  return list;
}

// A table that is missing or not as the runner writes it shows nothing.
Json row_cost_of(const RunInfo& run) {
  const auto found = run.environment.find("row_cost");
  if (found == run.environment.end()) return nullptr;
  const Json table = Json::parse(found->second, nullptr, false);
  if (!table.is_object() || !table.contains("rows") || !table["rows"].is_array()) return nullptr;
  Json rows = Json::array();
  double first_ms = 0;
  for (const Json& r : table["rows"]) {
    for (const char* key : {"rows", "ms", "q1_ms", "q3_ms"})
      if (!r.is_object() || !r.contains(key) || !r[key].is_number()) return nullptr;
    const double ms = r["ms"];
    if (rows.empty()) first_ms = ms;
    if (first_ms <= 0) return nullptr;
    rows.push_back({{"rows", r["rows"]},
                    {"ratio", ms / first_ms},
                    {"lo", r["q1_ms"].get<double>() / first_ms},
                    {"hi", r["q3_ms"].get<double>() / first_ms},
                    {"ms", ms}});
  }
  if (rows.empty()) return nullptr;
  return {{"context", table.value("context", Json(nullptr))}, {"rows", std::move(rows)}};
}

Json timelines_of(const results::ResultStore& store, int64_t run_id) {
  Json list = Json::array();
  for (const Timeline& t : load_timelines(store, run_id)) {
    Json steps = Json::array();
    const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
    for (const TimelineStep& s : t.steps)
      steps.push_back({s.turn + 1, s.step.rows, s.step.drafted, s.step.accepted, s.step.emitted,
                       ms(s.step.draft_ns), ms(s.step.verify_ns), ms(s.step.commit_ns),
                       ms(s.step.other_ns)});
    list.push_back({{"arm", t.arm},
                    {"generation", t.generation},
                    {"task", t.task},
                    {"prompt", t.prompt},
                    {"question", t.question},
                    {"answer", t.answer},
                    {"n_steps", t.n_steps},
                    {"steps", std::move(steps)}});
  }
  return list;
}

}  // namespace

std::string html_data(const Report& report, const results::ResultStore& store) {
  const Json data = {
      {"datasets", datasets_of(report)},
      {"indicative_below", kIndicativeBelow},
      {"rows", rows_of(report)},
      {"overlap_note", overlap_note(overlap_sentence(arms_of(report)))},
      {"flatters_note", flatters_note(arms_of(report))},
      {"sweeps", sweeps_of(report)},
      {"parts", parts_json(report)},
      {"row_cost", row_cost_of(report.run)},
      {"step_columns",
       {"turn", "rows", "drafted", "accepted", "emitted", "draft_ms", "verify_ms", "commit_ms",
        "other_ms"}},
      {"timelines", timelines_of(store, report.run.id)},
  };
  std::string out;
  // "<" stands in strings only; there, "</script>" or "<!--" would end or change the element.
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace))
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

}  // namespace evalrun::reports
