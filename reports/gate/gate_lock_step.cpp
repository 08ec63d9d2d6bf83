#include "reports/gate/gate_lock_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "reports/data/matching.h"
#include "reports/data/pairing.h"
#include "reports/gate/lock_step.h"

namespace evalrun::reports {

namespace {

using Answer = std::tuple<std::string, int64_t, int64_t>;  // prompt key, sample, repeat

std::map<Answer, const results::StepTimesRow*> answers_of(const LockStepRun& run,
                                                          const std::string& label) {
  std::map<Answer, const results::StepTimesRow*> answers;
  const ArmInfo* arm = run.data.arm(label);
  if (arm == nullptr) return answers;
  std::map<int64_t, const std::string*> keys;
  for (const PromptInfo& p : run.data.prompts) keys[p.id] = &p.key;
  for (const results::StepTimesRow& g : run.generations)
    if (g.arm_id == arm->id && g.emitted > 0)
      answers[{*keys.at(g.prompt_id), g.sample, g.repeat}] = &g;
  return answers;
}

// Times of both builds, side by side.
struct StepPairs {
  std::vector<double> base, now;
  int64_t answers = 0;
  // A clock may be too coarse for a step.
  void add(double before_ns, double now_ns) {
    base.push_back(std::max(before_ns, 1.0));
    now.push_back(std::max(now_ns, 1.0));
  }
  bool empty() const { return base.empty(); }
  double gain() const { return paired_gain(base, now); }
};

double total_ns(const results::StepTimesRow& g) {
  return std::accumulate(g.ns.begin(), g.ns.end(), 0.0);
}

StepPairs pairs(const LockStepRun& base, const LockStepRun& current, const std::string& label) {
  StepPairs pairs;
  const auto now = answers_of(current, label);
  for (const auto& [answer, before] : answers_of(base, label)) {
    const auto it = now.find(answer);
    if (it == now.end()) continue;
    const results::StepTimesRow& after = *it->second;
    ++pairs.answers;
    if (before->steps_hash == after.steps_hash && before->ns.size() == after.ns.size()) {
      for (size_t k = 0; k < after.ns.size(); ++k) pairs.add(before->ns[k], after.ns[k]);
    } else {  // for as many tokens
      pairs.add(total_ns(*before), total_ns(after) * static_cast<double>(before->emitted) /
                                       static_cast<double>(after.emitted));
    }
  }
  return pairs;
}

double overall_tok_s(const std::vector<LockStepRun>& sessions, const std::string& label) {
  Counters sum;
  for (const LockStepRun& run : sessions)
    if (const ArmInfo* arm = run.data.arm(label))
      for (const auto& [cell, s] : cells_of(run.data, arm->id)) sum.add(*s);
  return sum.fastest_tok_s();
}

class LockStepTest {
 public:
  LockStepTest(const std::vector<LockStepRun>& bases, const std::vector<LockStepRun>& news,
               const GateOptions& options)
      : bases_(bases),
        news_(news),
        alpha_(options.level()),
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

  const std::vector<LockStepRun>& bases_;
  const std::vector<LockStepRun>& news_;
  double alpha_, allowed_;
  std::vector<Tested> tested_;
  SpeedChecks result_;
};

SpeedChecks LockStepTest::judge() {
  for (const ArmInfo& arm : bases_.front().data.arms)
    if (arm.role != "aa") test(arm);
  decide();
  return std::move(result_);
}

void LockStepTest::test(const ArmInfo& arm) {
  const ArmInfo* reference = bases_.front().data.reference(arm);
  std::vector<double> of_arm, of_reference, of_ratio;  // of the sessions that have any
  int64_t n = 0;
  for (size_t r = 0; r < bases_.size(); ++r) {
    const StepPairs own = pairs(bases_[r], news_[r], arm.label);
    const StepPairs plain = pairs(bases_[r], news_[r], reference->label);
    if (own.empty() || plain.empty()) continue;
    n += own.answers;
    of_arm.push_back(own.gain());
    of_reference.push_back(plain.gain());
    of_ratio.push_back(of_arm.back() - of_reference.back());
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
  const RunData& run = bases_.front().data;
  for (GateCheck& v : result_.checks) {
    const ArmInfo& arm = *run.arm(v.method);
    if (v.metric == "tok_s" && arm.drafts() && slower(v.method) &&
        slower(run.reference(arm)->label))
      v.causes.push_back(Cause::kBothSlower);
  }
}

}  // namespace

SpeedChecks lock_step_checks(const std::vector<LockStepRun>& bases,
                             const std::vector<LockStepRun>& news, const GateOptions& options) {
  return LockStepTest(bases, news, options).judge();
}

}  // namespace evalrun::reports
