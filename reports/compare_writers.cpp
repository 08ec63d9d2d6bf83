#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/compare.h"
#include "reports/format.h"

namespace evalrun::reports {

namespace {

std::string run_name(const RunInfo& r) {
  return fmt::format("run {}{} · commit {} · {}", r.id,
                     r.label.empty() ? "" : fmt::format(" '{}'", r.label), r.commit, r.started);
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

std::string render(const Comparison& c, bool markdown) {
  const auto line = [&](const std::string& s) {
    return markdown ? fmt::format("{}\n\n", escape_markdown(s)) : fmt::format("{}\n", s);
  };
  std::string out =
      line(fmt::format("A: {}", run_name(c.a))) + line(fmt::format("B: {}", run_name(c.b)));
  Table t;
  t.header = {"method",  "data set",    "prompts", "B/A [95 %]", "p",
              "verdict", "same tokens", "speedup", "tok/s",      "AR tok/s",
              "tau",     "T(n)/T(1)",   "draft",   "overhead"};
  for (const ArmComparison& x : c.arms)
    t.rows.push_back(
        {x.method, x.dataset, fmt::format("{}", x.n_prompts),
         x.n_prompts > 0 ? with_interval(x.ratio, x.interval, x.n_prompts, 3) : "-",
         x.p_value ? (*x.p_value < 0.001 ? "<0.001" : number(x.p_value, 3)) : "-", verdict_cell(x),
         percent(x.identical_share, 1), change_of(x.a.speedup, x.b.speedup),
         change_of(x.a.tok_s, x.b.tok_s), change_of(x.a.base_tok_s, x.b.base_tok_s),
         change_of(x.a.tau, x.b.tau), change_of(x.a.t_ratio, x.b.t_ratio),
         change_of(x.a.draft_share, x.b.draft_share), change_of(x.a.overhead, x.b.overhead)});
  out += markdown ? t.markdown() : t.text();
  out += "\n";
  for (const std::string& w : c.warnings) out += line(fmt::format("Note: {}", w));
  out +=
      line(fmt::format("B/A: factor by which the speedup of a typical prompt changed, paired by "
                       "prompt; the interval is "
                       "for these prompts measured again (fixed set){}. No difference: the "
                       "interval lies within {} of 1.",
                       std::any_of(c.arms.begin(), c.arms.end(),
                                   [](const ArmComparison& x) {
                                     return x.interval && x.n_prompts < kIndicativeBelow;
                                   })
                           ? "; * fewer than 30 prompts: indicative only"
                           : "",
                       percent(c.min_effect, 1)));
  return out;
}

using Json = nlohmann::ordered_json;

Json run_json(const RunInfo& r) {
  return {{"run", r.id},
          {"label", r.label},
          {"suite", r.suite},
          {"commit", r.commit},
          {"started", r.started}};
}

Json side_json(const ArmSide& s) {
  return {{"speedup", s.speedup},  {"tok_s", s.tok_s},     {"ar_tok_s", s.base_tok_s},
          {"tau", s.tau},          {"t_ratio", s.t_ratio}, {"draft_share", s.draft_share},
          {"overhead", s.overhead}};
}

}  // namespace

std::string to_markdown(const Comparison& c) { return render(c, true); }
std::string to_text(const Comparison& c) { return render(c, false); }

std::string to_json(const Comparison& c) {
  Json rows = Json::array();
  for (const ArmComparison& x : c.arms) {
    Json causes = Json::array();
    for (const Cause cause : x.causes) causes.push_back(to_string(cause));
    rows.push_back({{"method", x.method},
                    {"dataset", x.dataset},
                    {"n_prompts", x.n_prompts},
                    {"ratio", x.n_prompts > 0 ? Json(x.ratio) : Json(nullptr)},
                    {"ratio_lo", x.interval ? Json(x.interval->lo) : Json(nullptr)},
                    {"ratio_hi", x.interval ? Json(x.interval->hi) : Json(nullptr)},
                    {"p_value", x.p_value ? Json(*x.p_value) : Json(nullptr)},
                    {"verdict", to_string(x.change)},
                    {"causes", causes},
                    {"identical_share", x.identical_share},
                    {"a", side_json(x.a)},
                    {"b", side_json(x.b)}});
  }
  const Json all = {{"a", run_json(c.a)},
                    {"b", run_json(c.b)},
                    {"min_effect", c.min_effect},
                    {"arms", rows},
                    {"warnings", c.warnings}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
