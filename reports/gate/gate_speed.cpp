#include "reports/gate/gate_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "reports/data/design.h"
#include "reports/data/matching.h"
#include "reports/data/sessions.h"
#include "reports/gate/gate_yardstick.h"

namespace evalrun::reports {

namespace {

// Tests every arm that drafts. The p-values are adjusted over all of them.
class SpeedTest {
 public:
  SpeedTest(const std::vector<RunData>& bases, const std::vector<RunData>& news,
            const GateOptions& options);
  SpeedChecks judge();

 private:
  // p-values of an arm that has enough prompts.
  struct Tested {
    size_t check;  // its place in the result
    double fell;   // of "the speedup fell beyond the margin"
    double rose;   // of "the speedup rose beyond the margin"
  };
  double margin_at(int64_t batch) const;
  void test(const JudgedArm& judged);
  double detectable(const SessionChange& change, double worst) const;
  void adjust();  // Holm, both sides by themselves
  void decide(const Tested& t);
  void describe(GateCheck& v, const JudgedArm& judged) const;

  const std::vector<RunData>& bases_;
  const std::vector<RunData>& news_;
  PromptDesigns designs_;
  double alpha_;
  std::map<int64_t, double> floors_;  // by batch, of both sides
  double max_regression_, allowed_;   // the loss that was asked for, and as ln of the speedup
  std::vector<JudgedArm> judged_;     // one for each check, in order
  std::vector<Tested> tested_;
  SpeedChecks result_;
};

// |mean log ratio| of the A/A arms over all sessions of a side, by batch the largest of `floors`
// and it.
void add_floors(const std::vector<RunData>& sessions, std::map<int64_t, double>& floors) {
  std::map<std::pair<int64_t, std::string>, std::vector<double>> means;
  for (const RunData& data : sessions)
    for (const ArmInfo& a : data.arms) {
      if (a.role != "aa") continue;
      const Pairing p =
          pair_with_reference(cells_of(data, a.id), cells_of(data, data.reference(a)->id),
                              [](int64_t) { return true; });
      const std::vector<double> logs = fastest_log_ratios(values_of(p.prompts));
      if (!logs.empty()) means[{a.batch, a.label}].push_back(base::mean(logs));
    }
  for (const auto& [arm, of_sessions] : means) {
    double& floor = floors[arm.first];
    floor = std::max(floor, std::fabs(base::mean(of_sessions)));
  }
}

double log_of_loss(double share) { return std::log1p(-std::min(share, 0.99)); }

// Chance of a mean as low as this if the true change were `limit`. Without any spread the test
// degenerates to a comparison.
double p_below(const SessionChange& t, double limit) {
  if (t.standard_error > 0) return base::student_t_cdf((t.mean - limit) / t.standard_error, t.dof);
  return t.mean < limit ? 0.0 : 1.0;
}

// What the two sides of a ratio are called: beside servers by their labels.
struct SideNames {
  std::string method = "method", yardstick = "AR";
};
SideNames side_names(const JudgedArm& judged) {
  if (!judged.server) return {};
  return {judged.label, judged.yardstick};
}

std::string cause_text(Cause cause, const SideNames& names) {
  switch (cause) {
    case Cause::kMethodSlower:
      return names.method + " slower";
    case Cause::kMethodFaster:
      return names.method + " faster";
    case Cause::kArSlower:
      return names.yardstick + " slower";
    case Cause::kArFaster:
      return names.yardstick + " faster";
    default:
      return to_string(cause);
  }
}

std::string causes_text(const std::vector<Cause>& causes, const SideNames& names) {
  std::string text;
  for (const Cause c : causes) text += (text.empty() ? "" : ", ") + cause_text(c, names);
  return text.empty() ? "" : text + ": ";
}

// The ratio hides what moved: tokens/s of both arms tell.
std::string tok_s_text(const MatchedSessions& m, const SideNames& names) {
  std::string text = fmt::format("{} {:.1f} -> {:.1f} tok/s", names.method,
                                 m.a.method.fastest_tok_s(), m.b.method.fastest_tok_s());
  if (!names.yardstick.empty())
    text += fmt::format(", {} {:.1f} -> {:.1f} tok/s", names.yardstick, m.a.base.fastest_tok_s(),
                        m.b.base.fastest_tok_s());
  return text;
}

std::string effect_name(const JudgedArm& judged) {
  if (!judged.server) return "speedup";
  return judged.yardstick.empty() ? "tokens per second, without a yardstick,"
                                  : "speed against " + judged.yardstick;
}

SpeedTest::SpeedTest(const std::vector<RunData>& bases, const std::vector<RunData>& news,
                     const GateOptions& options)
    : bases_(bases),
      news_(news),
      designs_(bases.front().prompts, Scope::kFixedSet),
      alpha_(options.level()),
      max_regression_(options.max_regression),
      allowed_(log_of_loss(options.max_regression)),
      judged_(yardsticks_of(bases.front(), options).arms) {
  add_floors(bases_, floors_);
  add_floors(news_, floors_);
  result_.margin = max_regression_;
  for (const auto& [batch, floor] : floors_) {
    result_.noise_floor = std::max(result_.noise_floor, floor);
    result_.margin = std::max(result_.margin, margin_at(batch));
  }
}

double SpeedTest::margin_at(int64_t batch) const {
  const auto floor = floors_.find(batch);
  return floor == floors_.end() ? max_regression_ : std::max(max_regression_, 2 * floor->second);
}

SpeedChecks SpeedTest::judge() {
  for (const JudgedArm& judged : judged_) test(judged);
  adjust();
  for (const Tested& t : tested_) decide(t);
  for (size_t i = 0; i < judged_.size(); ++i) describe(result_.checks[i], judged_[i]);
  return std::move(result_);
}

// Student's t of a loss beyond the margin, as it is tested: power 80 % for one that lies as many
// standard errors further off.
double SpeedTest::detectable(const SessionChange& change, double worst) const {
  constexpr double kPower = 0.8;
  const double errors = base::student_t_quantile(1 - alpha_, change.dof) +
                        base::student_t_quantile(kPower, change.dof);
  return -std::expm1(worst - errors * change.standard_error);
}

void SpeedTest::test(const JudgedArm& judged) {
  const ArmInfo& arm = *bases_.front().arm(judged.label);
  const MatchedSessions m = match_sessions(bases_, news_, arm.label, "", judged.yardstick);
  GateCheck v = gate_check("speed", arm.label, Outcome::kInconclusive, "", 0);
  v.n = static_cast<int64_t>(m.logs_a.front().size());
  v.margin = margin_at(arm.batch);
  const double worst = log_of_loss(*v.margin);
  const auto t = session_change(m.logs_a, m.logs_b, Scope::kFixedSet, 1 - 2 * alpha_,
                                designs_.of(m.prompts, arm.batch));
  if (!t) {
    v.reason = arm.batch == 1 ? "fewer than two prompts have a speedup in both runs"
                              : "fewer than two batches have a speedup in both runs";
  } else {
    v.effect = std::expm1(t->mean), v.lo = std::expm1(t->interval.lo),
    v.hi = std::expm1(t->interval.hi);
    // Noise widens what may be called a change, but never what may pass: a loss beyond the
    // asked-for limit that the data do not exclude stays open.
    v.outcome = t->interval.lo > -worst     ? Outcome::kImprovement
                : t->interval.lo > allowed_ ? Outcome::kOk
                                            : Outcome::kInconclusive;
    v.detectable = detectable(*t, worst);
    v.reason = tok_s_text(m, side_names(judged));
    v.causes = causes_of(m.a, m.b, m.same_tokens < m.cells,
                         -allowed_);  // what is below the limit is no cause
    tested_.push_back({result_.checks.size(), p_below(*t, worst), 1 - p_below(*t, -worst)});
  }
  result_.checks.push_back(std::move(v));
}

void SpeedTest::adjust() {
  for (double Tested::*side : {&Tested::fell, &Tested::rose}) {
    std::vector<double> p;
    for (const Tested& t : tested_) p.push_back(t.*side);
    p = base::adjusted_p(p, base::Adjustment::kHolm);
    for (size_t k = 0; k < tested_.size(); ++k) tested_[k].*side = p[k];
  }
}

void SpeedTest::decide(const Tested& t) {
  GateCheck& v = result_.checks[t.check];
  v.p_value = t.fell;
  if (t.fell < alpha_) v.outcome = Outcome::kRegression;
  // A speedup that rose because plain decoding lost speed is a loss of this engine, and one
  // that may have done so is not fine yet.
  if (!judged_[t.check].both_count) return;
  if (v.causes.empty() || v.causes.front() != Cause::kArSlower) return;
  if (t.rose < alpha_)
    v.outcome = Outcome::kRegression;
  else if (std::log1p(*v.hi) > -allowed_)
    v.outcome = Outcome::kInconclusive;
}

void SpeedTest::describe(GateCheck& v, const JudgedArm& judged) const {
  if (v.outcome == Outcome::kInconclusive) v.causes.clear();  // nothing is shown
  if (!v.effect) return;
  v.reason = fmt::format("{}{} {:+.1f} % [{:+.1f}, {:+.1f}], margin {:.1f} %; {}",
                         causes_text(v.causes, side_names(judged)), effect_name(judged),
                         100 * *v.effect, 100 * *v.lo, 100 * *v.hi, 100 * *v.margin, v.reason);
  if (judged.server)
    v.reason += fmt::format("; a loss of {:.1f} % would be found", 100 * *v.detectable);
}

}  // namespace

SpeedChecks speed_checks(const std::vector<RunData>& bases, const std::vector<RunData>& news,
                         const GateOptions& options) {
  return SpeedTest(bases, news, options).judge();
}

}  // namespace evalrun::reports
