#include "reports/gate/gate_lock_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "reports/data/matching.h"
#include "reports/data/pairing.h"
#include "reports/gate/lock_step.h"

namespace evalrun::reports {

namespace {

// (prompt key, sample) -> decode time per token.
using TokenTimes = std::map<std::pair<std::string, int>, double>;

TokenTimes token_times(const RunData& run, const std::string& label) {
  TokenTimes times;
  const ArmInfo* arm = run.arm(label);
  if (arm == nullptr) return times;
  std::map<int64_t, std::string> keys;
  for (const PromptInfo& p : run.prompts) keys[p.id] = p.key;
  for (const auto& [cell, s] : cells_of(run, arm->id))
    if (s->n_decode > 0 && s->fastest_ns > 0)
      times[{keys.at(cell.first), cell.second}] = s->fastest_ns / s->n_decode;
  return times;
}

// ln of how many times faster the new build was, cell by cell.
TokenTimes gains(const RunData& base, const RunData& current, const std::string& label) {
  TokenTimes gains = token_times(base, label);
  const TokenTimes now = token_times(current, label);
  for (auto it = gains.begin(); it != gains.end();) {
    const auto other = now.find(it->first);
    if (other == now.end()) {
      it = gains.erase(it);
    } else {
      it->second = std::log(it->second / other->second);
      ++it;
    }
  }
  return gains;
}

std::vector<double> values_in(const TokenTimes& cells) {
  std::vector<double> of;
  for (const auto& [cell, value] : cells) of.push_back(value);
  return of;
}

// Gains of the ratio of an arm to its reference.
TokenTimes ratio_to(const TokenTimes& arm, const TokenTimes& reference) {
  TokenTimes ratio;
  for (const auto& [cell, gain] : arm)
    if (const auto it = reference.find(cell); it != reference.end())
      ratio[cell] = gain - it->second;
  return ratio;
}

double overall_tok_s(const std::vector<RunData>& sessions, const std::string& label) {
  Counters sum;
  for (const RunData& run : sessions)
    if (const ArmInfo* arm = run.arm(label))
      for (const auto& [cell, s] : cells_of(run, arm->id)) sum.add(*s);
  return sum.fastest_tok_s();
}

class LockStepTest {
 public:
  LockStepTest(const std::vector<RunData>& bases, const std::vector<RunData>& news,
               const GateOptions& options)
      : bases_(bases),
        news_(news),
        alpha_(options.alpha / std::max(1, options.looks)),
        allowed_(std::log1p(-std::min(options.max_regression, 0.99))) {
    EVALRUN_CHECK(bases.size() == news.size(), "{} sessions take turns with {}", bases.size(),
                  news.size());
    result_.margin = options.max_regression;
  }
  SpeedChecks judge();

 private:
  struct Tested {
    size_t check;
    double fell, rose;  // p-values of a change beyond the margin
  };
  void test(const ArmInfo& arm);
  void add(const char* metric, const ArmInfo& arm, const std::vector<double>& effects,
           std::vector<Cause> causes, int64_t n);
  void decide();
  void name_both();
  std::vector<Cause> causes_of_speed(const std::vector<double>& arm,
                                     const std::vector<double>& reference) const;

  const std::vector<RunData>& bases_;
  const std::vector<RunData>& news_;
  double alpha_, allowed_;
  std::vector<Tested> tested_;
  SpeedChecks result_;
};

SpeedChecks LockStepTest::judge() {
  for (const ArmInfo& arm : bases_.front().arms)
    if (arm.role != "aa") test(arm);
  decide();
  return std::move(result_);
}

void LockStepTest::test(const ArmInfo& arm) {
  const ArmInfo* reference = bases_.front().reference(arm);
  std::vector<double> of_arm, of_reference, of_ratio;  // of the sessions that have any
  int64_t n = 0;
  for (size_t r = 0; r < bases_.size(); ++r) {
    const TokenTimes own = gains(bases_[r], news_[r], arm.label);
    const TokenTimes plain = gains(bases_[r], news_[r], reference->label);
    const TokenTimes ratio = ratio_to(own, plain);
    if (ratio.empty()) continue;
    n += static_cast<int64_t>(ratio.size());
    of_arm.push_back(session_effect(values_in(own)));
    of_reference.push_back(session_effect(values_in(plain)));
    of_ratio.push_back(session_effect(values_in(ratio)));
  }
  const std::vector<Cause> causes = causes_of_speed(of_arm, of_reference);
  if (arm.drafts()) add("speed", arm, of_ratio, causes, n);
  std::vector<Cause> own;
  if (!of_arm.empty() && std::fabs(base::mean(of_arm)) > -allowed_) {
    const bool slower = base::mean(of_arm) < 0;
    own = {arm.drafts() ? slower ? Cause::kMethodSlower : Cause::kMethodFaster
           : slower     ? Cause::kArSlower
                        : Cause::kArFaster};
  }
  add("tok_s", arm, of_arm, own, n);
}

std::vector<Cause> LockStepTest::causes_of_speed(const std::vector<double>& arm,
                                                 const std::vector<double>& reference) const {
  if (arm.empty()) return {};
  return speed_causes(base::mean(arm), base::mean(reference), -allowed_);
}

void LockStepTest::add(const char* metric, const ArmInfo& arm, const std::vector<double>& effects,
                       std::vector<Cause> causes, int64_t n) {
  GateCheck v = gate_check(metric, arm.label, Outcome::kInconclusive, "", n);
  v.margin = result_.margin;
  const auto t = lock_step_change(effects, 1 - 2 * alpha_);
  if (!t) {
    v.reason = "fewer than two sessions have speeds of both builds";
  } else {
    v.effect = std::expm1(t->mean), v.lo = std::expm1(t->interval.lo),
    v.hi = std::expm1(t->interval.hi);
    v.causes = std::move(causes);
    v.outcome = t->interval.lo > -allowed_  ? Outcome::kImprovement
                : t->interval.lo > allowed_ ? Outcome::kOk
                                            : Outcome::kInconclusive;
    tested_.push_back({result_.checks.size(), t->p_below(allowed_), t->p_above(-allowed_)});
  }
  result_.checks.push_back(std::move(v));
}

void LockStepTest::decide() {
  std::vector<double> fell;
  for (const Tested& t : tested_) fell.push_back(t.fell);
  fell = base::adjusted_p(fell, base::Adjustment::kHolm);
  for (size_t k = 0; k < tested_.size(); ++k) {
    GateCheck& v = result_.checks[tested_[k].check];
    v.p_value = fell[k];
    if (fell[k] < alpha_) v.outcome = Outcome::kRegression;
  }
  name_both();
  for (GateCheck& v : result_.checks) {
    if (!v.effect) continue;
    if (v.outcome == Outcome::kInconclusive) v.causes.clear();  // nothing is shown
    std::string causes;
    for (const Cause c : v.causes)
      causes += fmt::format("{}{}", causes.empty() ? "" : ", ", to_string(c));
    v.reason = fmt::format(
        "{}{}{} {:+.1f} % [{:+.1f}, {:+.1f}], margin {:.1f} %; {:.1f} -> {:.1f} "
        "tok/s, {} sessions in lock step",
        causes, causes.empty() ? "" : ": ", v.metric == "speed" ? "speedup" : "tokens/s",
        100 * *v.effect, 100 * *v.lo, 100 * *v.hi, 100 * *v.margin, overall_tok_s(bases_, v.method),
        overall_tok_s(news_, v.method), bases_.size());
  }
}

// A method that is slower, by the side of its plain decoding that is, too.
void LockStepTest::name_both() {
  const auto slower = [&](const std::string& arm) {
    return std::any_of(result_.checks.begin(), result_.checks.end(), [&](const GateCheck& v) {
      return v.metric == "tok_s" && v.method == arm && v.outcome == Outcome::kRegression;
    });
  };
  const RunData& run = bases_.front();
  for (GateCheck& v : result_.checks) {
    const ArmInfo& arm = *run.arm(v.method);
    if (v.metric == "tok_s" && arm.drafts() && slower(v.method) &&
        slower(run.reference(arm)->label))
      v.causes.push_back(Cause::kBothSlower);
  }
}

}  // namespace

SpeedChecks lock_step_checks(const std::vector<RunData>& bases, const std::vector<RunData>& news,
                             const GateOptions& options) {
  return LockStepTest(bases, news, options).judge();
}

}  // namespace evalrun::reports
