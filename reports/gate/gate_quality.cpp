#include "reports/gate/gate_quality.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

namespace evalrun::reports {

using results::Row;

namespace {

// (prompt key, evaluator) -> scores of one arm, its samples in order; answers nobody could judge
// are left out.
using Scores = std::map<std::pair<std::string, std::string>, std::vector<double>>;

Scores scores_of(const results::ResultStore& store, const RunData& data, const std::string& label,
                 Faults faults) {
  Scores scores;
  store.query(fmt::format("SELECT p.key, s.evaluator || '@' || s.version, s.value FROM v_score s "
                          "JOIN prompt p ON p.id = s.prompt_id "
                          "WHERE s.run_id = ? AND s.arm_id = ? AND s.value IS NOT NULL{} ORDER BY "
                          "s.sample",
                          faults == Faults::kLeaveOut ? " AND s.fault = ''" : ""),
              {data.run.id, data.arm(label)->id}, [&](const Row& r) {
                scores[{r.text(0), r.text(1)}].push_back(r.number(2));
                return true;
              });
  return scores;
}

struct Pairs {  // one entry per prompt
  std::vector<double> base, differences;
  bool changed = false;
};

GateCheck judge(const std::string& label, const std::string& evaluator, const Pairs& p,
                const GateOptions& options) {
  const auto n = static_cast<int64_t>(p.base.size());
  if (!p.changed)
    return gate_check("quality", label, Outcome::kOk,
                      fmt::format("{}: same scores as the baseline", evaluator), n);
  const double mean = base::mean(p.base);
  const double allowed = -options.max_quality_loss * std::fabs(mean);
  const auto t = base::t_interval(p.differences, 1 - 2 * options.alpha);
  if (!t)
    return gate_check("quality", label, Outcome::kInconclusive,
                      fmt::format("{}: one prompt only", evaluator), n);
  const Outcome outcome = t->interval.hi < allowed   ? Outcome::kCorrectness
                          : t->interval.lo > allowed ? Outcome::kOk
                                                     : Outcome::kInconclusive;
  return gate_check(
      "quality", label, outcome,
      fmt::format("{} {:+.3f} [{:+.3f}, {:+.3f}] from {:.3f}; a loss of {:.3f} ({:.0f} %) passes",
                  evaluator, t->mean, t->interval.lo, t->interval.hi, mean, -allowed,
                  100 * options.max_quality_loss),
      n);
}

}  // namespace

std::vector<GateCheck> quality_checks(const results::ResultStore& base_store,
                                      const RunData& was_run, const results::ResultStore& store,
                                      const RunData& current, const GateOptions& options) {
  std::vector<GateCheck> checks;
  for (const ArmInfo& a : was_run.arms) {
    if (a.role == "aa") continue;
    const Scores was = scores_of(base_store, was_run, a.label, Faults::kLeaveOut);
    const Scores is = scores_of(store, current, a.label, options.faults);
    std::map<std::string, Pairs> by_evaluator;
    for (const auto& [key, scores] : was) {
      const auto it = is.find(key);
      if (it == is.end()) continue;
      Pairs& p = by_evaluator[key.second];
      p.base.push_back(base::mean(scores));
      p.differences.push_back(base::mean(it->second) - p.base.back());
      p.changed = p.changed || p.differences.back() != 0;
    }
    for (const auto& [evaluator, p] : by_evaluator)
      checks.push_back(judge(a.label, evaluator, p, options));
  }
  return checks;
}

}  // namespace evalrun::reports
