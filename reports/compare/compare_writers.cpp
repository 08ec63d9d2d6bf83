#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "reports/compare/compare.h"
#include "reports/compare/run_json.h"
#include "reports/document/records.h"
#include "reports/format.h"
#include "reports/json_values.h"

namespace evalrun::reports {

namespace {

std::string run_name(const RunInfo& r) {
  return fmt::format("{} · commit {} · {}", run_title(r), r.commit, r.started);
}

std::string change_of(double a, double b) {  // "1.40 -> 1.26"
  return fmt::format("{} -> {}", number(a, 2), number(b, 2));
}

std::string verdict_cell(const ArmComparison& c) {
  std::string causes;
  for (const Cause cause : c.causes)
    causes += fmt::format("{}{}", causes.empty() ? "" : ", ", to_string(cause));
  return causes.empty() ? to_string(c.change) : fmt::format("{} ({})", to_string(c.change), causes);
}

std::string p_text(const std::optional<double>& p) {
  return p && *p < 0.001 ? "<0.001" : number(p, 3);
}

// What a verdict is based on.
std::string verdict_text(const Comparison& c) {
  const std::string level = percent(1 - c.confidence, 1);
  std::string text = fmt::format(
      "Verdict: no difference where the interval lies within {} of 1; else faster or slower where ",
      percent(c.min_effect, 1));
  switch (c.adjustment) {
    case base::Adjustment::kNone:
      return text + fmt::format(
                        "the interval leaves out 1, not adjusted for the number of rows: {} of the "
                        "rows without a change are called changed.",
                        level);
    case base::Adjustment::kHolm:
      return text +
             fmt::format("p adj. (Holm over the rows) is below {}: the chance of any false call.",
                         level);
    case base::Adjustment::kBenjaminiHochberg:
      return text + fmt::format(
                        "p adj. (Benjamini-Hochberg over the rows) is below {}: of the rows called "
                        "changed, at most that share is false on average.",
                        level);
  }
  EVALRUN_CHECK(false, "unknown adjustment {}", static_cast<int>(c.adjustment));
}

// What B/A's interval is for and made from.
std::string interval_source(const Comparison& c) {
  const bool several = c.a.size() > 1 || c.b.size() > 1;
  std::string text = "for " + scope_text(c.scope);
  if (!several)
    return text +
           ", from the spread over prompts within one session a side: what another session "
           "would add is not in it";
  return text + (c.scope == Scope::kFixedSet
                     ? ", from the spread between sessions"
                     : ", from the spread over prompts and between sessions");
}

Table comparison_table(const Comparison& c, bool from_prompts) {
  const bool several = c.a.size() > 1 || c.b.size() > 1;
  const bool adjusted = c.adjustment != base::Adjustment::kNone;
  Table t;
  t.columns = {
      {.name = "method", .words = true},
      {.name = "data set", .words = true},
      {.name = "prompts"},
      {.name = fmt::format("B/A [{} %]", number(100 * c.confidence, c.confidence == 0.95 ? 0 : 2))},
      {.name = "p", .room = adjusted ? Room::kPage : Room::kAlways},
      {.name = "verdict", .words = true},
      {.name = "same tokens"}};
  if (several)
    t.columns.insert(t.columns.begin() + 4, {.name = "sd of sessions", .room = Room::kPage});
  const auto before_verdict = t.columns.end() - 2;
  if (adjusted) t.columns.insert(before_verdict, {.name = "p adj."});
  for (const char* h : {"speedup", "tok/s", "AR tok/s"})
    t.columns.push_back({.name = h, .room = Room::kPage});
  for (const char* h : {"tau", "T(n)/T(1)", "draft", "overhead"})
    t.columns.push_back({.name = h, .room = Room::kWide});
  for (const ArmComparison& x : c.arms) {
    // A star is for few prompts; where prompts are no sample, their number does not matter.
    std::vector<Cell> row = {
        x.method, x.dataset, fmt::format("{}", x.n_prompts),
        x.n_prompts > 0
            ? figure_cell(x.ratio, x.interval, from_prompts ? x.n_eff : kIndicativeBelow, 3)
            : "-"};
    if (several) row.emplace_back(percent(x.session_sd, 2));
    row.emplace_back(p_text(x.p_value));
    if (adjusted) row.emplace_back(p_text(x.p_adjusted));
    row.emplace_back(verdict_cell(x), x.change == Change::kFaster   ? Style::kGood
                                      : x.change == Change::kSlower ? Style::kBad
                                                                    : Style::kPlain);
    for (std::string cell :
         {percent(x.identical_share, 1), change_of(x.a.speedup, x.b.speedup),
          change_of(x.a.tok_s, x.b.tok_s), change_of(x.a.base_tok_s, x.b.base_tok_s),
          change_of(x.a.tau, x.b.tau), change_of(x.a.t_ratio, x.b.t_ratio),
          change_of(x.a.draft_share, x.b.draft_share), change_of(x.a.overhead, x.b.overhead)})
      row.emplace_back(std::move(cell));
    t.rows.push_back(std::move(row));
  }
  return t;
}

// The first session's keys, as for one run, and all of them.
Json side_json(const std::vector<RunInfo>& sessions) {
  Json side = run_json(sessions.front());
  side["sessions"] = Json::array();
  for (const RunInfo& r : sessions) side["sessions"].push_back(run_json(r));
  return side;
}

const char* name_of(base::Adjustment a) {
  return a == base::Adjustment::kNone ? "none" : a == base::Adjustment::kHolm ? "holm" : "bh";
}

Json side_json(const ArmSide& s) {
  return {{"speedup", s.speedup},  {"tok_s", s.tok_s},     {"ar_tok_s", s.base_tok_s},
          {"tau", s.tau},          {"t_ratio", s.t_ratio}, {"draft_share", s.draft_share},
          {"overhead", s.overhead}};
}

Json arms_json(const Comparison& c) {
  Json rows = Json::array();
  for (const ArmComparison& x : c.arms) {
    Json causes = Json::array();
    for (const Cause cause : x.causes) causes.push_back(to_string(cause));
    rows.push_back({{"method", x.method},
                    {"dataset", x.dataset},
                    {"n_prompts", x.n_prompts},
                    {"ratio", x.n_prompts > 0 ? Json(x.ratio) : Json(nullptr)},
                    {"ratio_lo", json_lo(x.interval)},
                    {"ratio_hi", json_hi(x.interval)},
                    {"p_value", json_value(x.p_value)},
                    {"verdict", to_string(x.change)},
                    {"causes", causes},
                    {"identical_share", x.identical_share},
                    {"a", side_json(x.a)},
                    {"b", side_json(x.b)},
                    {"p_adjusted", json_value(x.p_adjusted)},
                    {"session_sd", json_value(x.session_sd)}});
  }
  return rows;
}

}  // namespace

Document document(const Comparison& c) {
  const bool several = c.a.size() > 1 || c.b.size() > 1;
  const bool from_prompts = !several || c.scope != Scope::kFixedSet;
  Document d{.name = "compare"};
  for (const auto& [name, runs] : {std::pair{"A", &c.a}, std::pair{"B", &c.b}})
    for (const RunInfo& r : *runs) d.paragraph(fmt::format("{}: {}", name, run_name(r)));
  Table t = comparison_table(c, from_prompts);
  const bool indicative =
      std::any_of(t.rows.begin(), t.rows.end(), [](const auto& row) { return row[3].indicative; });
  t.caption = fmt::format("{} against {}: factor by which the speedup of a typical prompt changed.",
                          run_name(c.b.front()), run_name(c.a.front()));
  d.table(std::move(t));
  for (const std::string& w : c.warnings) d.paragraph(fmt::format("Note: {}", w));
  d.paragraph(
      fmt::format("B/A: factor by which the speedup of a typical prompt changed, paired by prompt; "
                  "the interval is {}{}.",
                  interval_source(c), indicative ? fmt::format("; *: {}", kIndicative) : ""));
  d.paragraph(verdict_text(c));
  d.note("Definitions", "docs/measurement.md#comparing-two-runs");
  d.data = records(arms_json(c));
  return d;
}

std::string to_json(const Comparison& c) {
  const Json all = {{"a", side_json(c.a)},        {"b", side_json(c.b)},
                    {"min_effect", c.min_effect}, {"arms", arms_json(c)},
                    {"warnings", c.warnings},     {"scope", to_string(c.scope)},
                    {"confidence", c.confidence}, {"adjust", name_of(c.adjustment)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
