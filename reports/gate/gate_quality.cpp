#include "reports/gate/gate_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "reports/data/design.h"
#include "reports/data/jackknife.h"
#include "reports/data/matching.h"

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
  std::vector<int64_t> prompts;  // by their ids in the baseline's run
  bool changed = false;
};

// New minus old, over prompts.
struct MeanDifference {
  double mean = 0, standard_error = 0, dof = 0;
  // Chance of a mean as low as this if the true one were `limit`. Without any spread the test
  // degenerates to a comparison.
  double p_below(double limit) const {
    if (standard_error > 0) return base::student_t_cdf((mean - limit) / standard_error, dof);
    return mean < limit ? 0.0 : 1.0;
  }
  double half_width(double alpha) const {
    return base::student_t_quantile(1 - alpha, dof) * standard_error;
  }
};

// As control_differences() has it for one arm. nullopt where all prompts are one unit.
std::optional<MeanDifference> mean_difference(const Pairs& p, const PromptDesigns& designs) {
  std::vector<Sums> prompts;
  double largest = 0;
  for (const double d : p.differences) {
    prompts.push_back({d, 1, 1, 1});
    largest = std::max(largest, std::fabs(d));
  }
  const Units units = units_of(std::move(prompts), designs.of(p.prompts));
  const auto j = jackknife(units, quotient);
  if (!j) return std::nullopt;
  const double dof = std::min(units.degrees(units.effective_count(1)), j->kurtosis_dof());
  const double error = j->standard_error();
  return MeanDifference{j->value, error > 1e-12 * largest ? error : 0.0, std::max(1.0, dof)};
}

// The scores of one arm by one evaluator.
struct ScoredArm {
  std::string label, evaluator;
  Pairs pairs;
  std::optional<MeanDifference> difference = {};
  double allowed = 0;  // change of the mean that passes
  double p = 1;        // of a mean as low, if the true one were that; adjusted in the end
};

GateCheck quality_verdict(const ScoredArm& arm, size_t comparisons, const GateOptions& options) {
  const auto n = static_cast<int64_t>(arm.pairs.base.size());
  if (!arm.pairs.changed)
    return gate_check("quality", arm.label, Outcome::kOk,
                      fmt::format("{}: same scores as the baseline", arm.evaluator), n);
  if (!arm.difference)
    return gate_check("quality", arm.label, Outcome::kInconclusive,
                      fmt::format("{}: {}", arm.evaluator,
                                  n == 1 ? "one prompt only" : "all prompts are of one group"),
                      n);
  const double mean = arm.difference->mean, half = arm.difference->half_width(options.alpha);
  const Outcome outcome = arm.p < options.alpha       ? Outcome::kCorrectness
                          : mean - half > arm.allowed ? Outcome::kOk
                                                      : Outcome::kInconclusive;
  std::string reason =
      fmt::format("{} {:+.3f} [{:+.3f}, {:+.3f}] from {:.3f}; a loss of {:.3f} ({:.0f} %) passes",
                  arm.evaluator, mean, mean - half, mean + half, base::mean(arm.pairs.base),
                  -arm.allowed, 100 * options.max_quality_loss);
  if (outcome != Outcome::kCorrectness && mean + half < arm.allowed)
    reason += fmt::format("; one of {} comparisons may be as low by chance (p {:.2f})", comparisons,
                          arm.p);
  GateCheck v = gate_check("quality", arm.label, outcome, std::move(reason), n);
  v.p_value = arm.p;
  return v;
}

}  // namespace

std::vector<GateCheck> quality_checks(const results::ResultStore& base_store,
                                      const RunData& was_run, const results::ResultStore& store,
                                      const RunData& current, const GateOptions& options) {
  const PromptDesigns designs(was_run.prompts, Scope::kSameKind);
  const auto prompts = prompts_by_key(was_run);
  std::vector<ScoredArm> arms;
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
      p.prompts.push_back(prompts.at(key.first)->id);
      p.changed = p.changed || p.differences.back() != 0;
    }
    for (auto& [evaluator, p] : by_evaluator) arms.push_back({a.label, evaluator, std::move(p)});
  }
  // Equal scores count, too: which arms have them is chance, and the family is to be known before.
  // Sessions and repeats give the same scores again, for draws are keyed.
  std::vector<double> worse;
  for (ScoredArm& arm : arms) {
    arm.allowed = -options.max_quality_loss * std::fabs(base::mean(arm.pairs.base));
    if (arm.pairs.changed) arm.difference = mean_difference(arm.pairs, designs);
    worse.push_back(arm.difference ? arm.difference->p_below(arm.allowed) : 1.0);
  }
  worse = base::adjusted_p(worse, base::Adjustment::kHolm);
  std::vector<GateCheck> checks;
  for (size_t k = 0; k < arms.size(); ++k) {
    arms[k].p = worse[k];
    checks.push_back(quality_verdict(arms[k], arms.size(), options));
  }
  return checks;
}

}  // namespace evalrun::reports
