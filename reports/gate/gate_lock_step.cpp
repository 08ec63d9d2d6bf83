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
};

// One arm of both builds, by session.
struct PairedSessions {
  std::vector<double> gains, full_gains;
  std::vector<LongSteps> long_steps;
  void add(const StepPairs& steps) {
    gains.push_back(paired_gain(steps.base, steps.now));
    full_gains.push_back(full_gain(steps.base, steps.now));
    long_steps.push_back(count_long_steps(steps.base, steps.now));
  }
  LongSteps all_long_steps() const {
    LongSteps all;
    for (const LongSteps& s : long_steps) all.add(s);
    return all;
  }
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

// What the sessions say of one figure of an arm: gains of the second build, and who moved by them.
struct SessionFigure {
  std::vector<double> gains, full_gains;
  std::vector<LongBalance> balance;
  std::vector<Cause> causes, full_causes;
  LongSteps own, plain;  // plain: of a speedup
};

double excess_of(const LongSteps& s) { return s.now_share() - s.base_share(); }

// "3.1 % of this build's steps took more than 1.5 times the other's, 0.2 % of the other's"
std::string long_steps_text(const SessionFigure& figure) {
  std::string text = fmt::format(
      "{:.1f} % of this build's steps took more than {} times the other's, {:.1f} % of the other's",
      100 * figure.own.now_share(), kSpike, 100 * figure.own.base_share());
  if (figure.plain.pairs > 0)
    text += fmt::format("; of plain decoding's {:.1f} % and {:.1f} %",
                        100 * figure.plain.now_share(), 100 * figure.plain.base_share());
  return text;
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
    double half_width;  // of the interval of the gains
    SessionFigure figure;
    std::string long_steps = {};  // what is told of them, "" for nothing
  };
  void test(const ArmInfo& arm);
  void add(const char* metric, const ArmInfo& arm, SessionFigure figure, int64_t n);
  void decide();
  void judge_long_steps(Tested& t);
  void name_both();
  std::vector<Cause> causes_of_times(const ArmInfo& arm, const std::vector<double>& gains) const;
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
  PairedSessions of_arm, of_reference;  // those that have any
  int64_t n = 0;
  for (size_t r = 0; r < bases_.size(); ++r) {
    const StepPairs own = pairs(bases_[r], news_[r], arm.label);
    const StepPairs plain = pairs(bases_[r], news_[r], reference->label);
    if (own.empty() || plain.empty()) continue;
    n += own.answers;
    of_arm.add(own);
    of_reference.add(plain);
  }
  SessionFigure speed, times;
  for (size_t r = 0; r < of_arm.gains.size(); ++r) {
    const LongSteps &own = of_arm.long_steps[r], &plain = of_reference.long_steps[r];
    times.balance.push_back({own.now, own.base, excess_of(own)});
    // A speedup falls by the steps of its plain decoding that the other build has.
    speed.balance.push_back(
        {own.now + plain.base, own.base + plain.now, excess_of(own) - excess_of(plain)});
    speed.gains.push_back(of_arm.gains[r] - of_reference.gains[r]);
    speed.full_gains.push_back(of_arm.full_gains[r] - of_reference.full_gains[r]);
  }
  speed.own = times.own = of_arm.all_long_steps();
  speed.plain = of_reference.all_long_steps();
  speed.causes = causes_of_speed(of_arm.gains, of_reference.gains);
  speed.full_causes = causes_of_speed(of_arm.full_gains, of_reference.full_gains);
  times.causes = causes_of_times(arm, of_arm.gains);
  times.full_causes = causes_of_times(arm, of_arm.full_gains);
  times.gains = std::move(of_arm.gains);
  times.full_gains = std::move(of_arm.full_gains);
  if (arm.drafts()) add("speed", arm, std::move(speed), n);
  add("tok_s", arm, std::move(times), n);
}

std::vector<Cause> LockStepTest::causes_of_times(const ArmInfo& arm,
                                                 const std::vector<double>& gains) const {
  if (gains.empty() || std::fabs(base::mean(gains)) <= -allowed_) return {};
  const bool slower = base::mean(gains) < 0;
  return {arm.drafts() ? slower ? Cause::kMethodSlower : Cause::kMethodFaster
          : slower     ? Cause::kArSlower
                       : Cause::kArFaster};
}

std::vector<Cause> LockStepTest::causes_of_speed(const std::vector<double>& arm,
                                                 const std::vector<double>& reference) const {
  if (arm.empty()) return {};
  return speed_causes(base::mean(arm), base::mean(reference), -allowed_);
}

void set_change(GateCheck& v, const LockStepChange& change) {
  v.effect = std::expm1(change.mean);
  v.lo = std::expm1(change.interval.lo);
  v.hi = std::expm1(change.interval.hi);
}

void LockStepTest::add(const char* metric, const ArmInfo& arm, SessionFigure figure, int64_t n) {
  GateCheck v = gate_check(metric, arm.label, Outcome::kInconclusive, "", n);
  v.margin = result_.margin;
  v.long_steps = figure.own;
  const auto t = lock_step_change(figure.gains, 1 - 2 * alpha_);
  if (!t) {
    v.reason = "fewer than two sessions have speeds of both builds";
  } else {
    set_change(v, *t);
    v.causes = figure.causes;
    v.outcome = t->interval.lo > -allowed_  ? Outcome::kImprovement
                : t->interval.lo > allowed_ ? Outcome::kOk
                                            : Outcome::kInconclusive;
    tested_.push_back({result_.checks.size(), t->p_below(allowed_), t->p_above(-allowed_),
                       t->mean - t->interval.lo, std::move(figure)});
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
  for (Tested& t : tested_) judge_long_steps(t);
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
  for (const Tested& t : tested_) result_.checks[t.check].reason += t.long_steps;
}

// Long steps count in part as long as they may be the machine's, which makes them to both builds
// alike. Where this build has significantly more, they are its own and count in full: an ok stands
// only if the figures in full exclude a loss beyond the margin, too, and a loss that those prove is
// a regression.
//
// The level. Of K tests of a look at its level L, Holm's first is at L / K, so that a build that is
// no slower is called slower with a chance of K L / K = L at most (Bonferroni). Taking an ok away
// adds nothing to that. What is called slower here adds L / K at most, for each of the K figures
// has to pass two tests at L / K^2:
//   that long steps are more. If they are the machine's, one of K passes with K L / K^2 = L / K.
//   that the loss in full is beyond the margin. If they are the build's, but have not cost as
//   much, one of K passes with L / K again.
// And Holm's tests leave an L / K over. Let x and y be what an arm and its plain decoding lost, and
// x - y what their ratio did; none is beyond the margin m. They cannot all be at it: with x = y = m
// the ratio has lost nothing, with x = x - y = m plain decoding has not, and in between both of
// these are off their limit. A test that is off it by m hardly ever errs on a machine that tells m
// from nothing; on any other (half_width) no build is called slower here. Together: L.
void LockStepTest::judge_long_steps(Tested& t) {
  GateCheck& v = result_.checks[t.check];
  const auto tests = static_cast<double>(tested_.size());
  const double more = tests * tests * more_long_steps_p(t.figure.balance);
  if (more >= alpha_) return;
  const auto full = lock_step_change(t.figure.full_gains, 1 - 2 * alpha_);
  EVALRUN_CHECK(full.has_value(), "{} has gains of one session", v.method);
  const double fell = std::min(1.0, std::max(more, tests * tests * full->p_below(allowed_)));
  const bool was_ok = v.outcome == Outcome::kOk || v.outcome == Outcome::kImprovement;
  bool in_full = false;
  if (v.outcome != Outcome::kRegression && t.half_width <= -allowed_ && fell < alpha_) {
    v.outcome = Outcome::kRegression;
    v.p_value = fell;
    in_full = true;
  } else if (was_ok && full->interval.lo <= allowed_) {
    v.outcome = Outcome::kInconclusive;
    in_full = true;
  }
  t.long_steps = "; " + long_steps_text(t.figure);
  if (in_full) {
    set_change(v, *full);
    v.causes = t.figure.full_causes;
    t.long_steps += ", and all count in full";
  } else {
    t.long_steps +=
        fmt::format(": {:+.1f} % [{:+.1f}, {:+.1f}] in full", 100 * std::expm1(full->mean),
                    100 * std::expm1(full->interval.lo), 100 * std::expm1(full->interval.hi));
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
