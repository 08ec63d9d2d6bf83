// Two builds in lock step: the statistic, the gate's checks on runs whose change is known, and the
// error rates on simulated machines.
#include "reports/gate/lock_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/rng.h"
#include "reports/gate/gate_lock_step.h"
#include "reports/gate/simulated/simulated_gate.h"

namespace evalrun::reports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LockStepStatistic, SumsOfStepsAreCompared) {
  const auto gain = [](std::vector<double> base, std::vector<double> now) {
    return paired_gain(base, now);
  };
  EXPECT_DOUBLE_EQ(gain({5}, {4}), std::log(5.0 / 4));
  // Long steps count for more: 5 + 5 + 20 to 5 + 5 + 16.
  EXPECT_DOUBLE_EQ(gain({5, 5, 20}, {5, 5, 16}), std::log(30.0 / 26));
  // A spike on either side is 1.5 times the neighbour.
  EXPECT_DOUBLE_EQ(gain({5, 5, 5}, {5, 90, 5}), std::log(15 / 17.5));
  EXPECT_DOUBLE_EQ(gain({5, 90, 5}, {5, 5, 5}), std::log(17.5 / 15));
  // One step in four that is half as slow again shows in full.
  EXPECT_DOUBLE_EQ(gain({4, 4, 4, 4}, {4, 6, 4, 4}), std::log(16.0 / 18));
  // So does what is common to all, however much, and a spike beside it is one still.
  EXPECT_DOUBLE_EQ(gain({4, 4, 4}, {12, 12, 12}), -std::log(3.0));
  EXPECT_DOUBLE_EQ(gain({4, 4, 4}, {12, 12, 60}), std::log(12.0 / 42));
}

TEST(LockStepStatistic, LongStepsAreCountedByTheirBuild) {
  const auto count = [](std::vector<double> base, std::vector<double> now) {
    const LongSteps s = count_long_steps(base, now);
    return std::vector<int64_t>{s.pairs, s.base, s.now};
  };
  EXPECT_THAT(count({5, 5, 5, 5, 5}, {5, 90, 5, 8, 5}), ElementsAre(5, 0, 2));
  EXPECT_THAT(count({5, 90, 5, 5}, {5, 5, 5, 7}), ElementsAre(4, 1, 0));
  // 1.5 times counts in full, and so it does beyond what is common to all.
  EXPECT_THAT(count({4, 4, 4, 4}, {4, 6, 4, 4}), ElementsAre(4, 0, 0));
  EXPECT_THAT(count({4, 4, 4}, {12, 12, 60}), ElementsAre(3, 0, 1));
  EXPECT_THAT(count({4, 4, 60}, {12, 12, 12}), ElementsAre(3, 1, 0));
  EXPECT_DOUBLE_EQ(full_gain(std::vector<double>{4, 4, 60}, std::vector<double>{12, 12, 12}),
                   std::log(68.0 / 36));
  LongSteps all{10, 1, 2};
  all.add({30, 1, 8});
  EXPECT_DOUBLE_EQ(all.base_share(), 0.05);
  EXPECT_DOUBLE_EQ(all.now_share(), 0.25);
  EXPECT_EQ(LongSteps().now_share(), 0);
}

TEST(LockStepStatistic, LongStepsAreTestedByTwoTests) {
  const auto p = [](const std::vector<LongBalance>& sessions) {
    return more_long_steps_p(sessions);
  };
  // A burst of thirty in one session of six: 2^-30 by the binomial, t = 1 over the sessions.
  EXPECT_NEAR(p({{30, 0, 0.3}, {}, {}, {}, {}, {}}), 1 - base::student_t_cdf(1, 5), 1e-12);
  // One each: no spread, so that t is certain; the binomial says 2^-6.
  EXPECT_NEAR(p(std::vector<LongBalance>(6, {1, 0, 0.01})), 1.0 / 64, 1e-12);
  // 0.04 on average, standard deviation 0.02 / sqrt(3): t = 0.04 / (0.02 / sqrt(3) / 2) with three
  // degrees of freedom. 16 of 16 are 2^-16.
  const double t = 4 * std::sqrt(3.0);
  EXPECT_NEAR(p({{3, 0, 0.03}, {5, 0, 0.05}, {3, 0, 0.03}, {5, 0, 0.05}}),
              1 - base::student_t_cdf(t, 3), 1e-9);
  EXPECT_GT(p({{3, 5, -0.02}, {5, 6, -0.01}, {4, 5, -0.01}}), 0.9);
  EXPECT_EQ(p(std::vector<LongBalance>(6)), 1) << "none";
  EXPECT_EQ(p({{50, 0, 0.5}}), 1) << "one session says nothing about the next one";
}

TEST(LockStepStatistic, SessionsAreWhatIsCounted) {
  EXPECT_FALSE(lock_step_change(std::vector<double>{0.1}, 0.9));
  // Mean -0.05, standard deviation 0.01: t with 3 degrees of freedom.
  const double d = 0.01 * std::sqrt(3.0) / 2;
  const auto change =
      lock_step_change(std::vector<double>{-0.05 - d, -0.05 + d, -0.05 - d, -0.05 + d}, 0.9);
  ASSERT_TRUE(change);
  EXPECT_NEAR(change->standard_error, 0.005, 1e-12);
  EXPECT_NEAR(change->interval.hi, -0.05 + 2.3534 * 0.005, 1e-6);
  EXPECT_NEAR(change->p_below(-0.03), base::student_t_cdf(-4, 3), 1e-12);
  EXPECT_NEAR(change->p_above(-0.03) + change->p_below(-0.03), 1, 1e-12);
  const auto still = lock_step_change(std::vector<double>{0, 0}, 0.9);
  EXPECT_EQ(still->p_below(-0.03), 1);
  EXPECT_EQ(still->p_above(-0.03), 0);
}

// Sessions of two builds whose times are `plain` and `method` of the usual ones in the second. Each
// session has a speed of its own, the same for both builds; `noise` is of a generation.
struct Measured {
  std::vector<LockStepRun> bases, news;
};
constexpr int kSteps = 21;
Measured measured(double plain, double method, int sessions = 6, double noise = 0.01) {
  base::Rng rng(7);
  Measured m;
  for (int s = 0; s < sessions; ++s) {
    const double speed = 1 + 0.2 * rng.uniform();
    for (const bool ours : {false, true}) {
      LockStepRun& whole = (ours ? m.news : m.bases).emplace_back();
      RunData& run = whole.data;
      for (const auto& [label, role] :
           {std::pair("ar", "baseline"), std::pair("pld", "method"), std::pair("ar (A/A)", "aa")}) {
        ArmInfo& arm = run.arms.emplace_back();
        arm.id = static_cast<int64_t>(run.arms.size()), arm.label = label, arm.role = role;
        arm.method = arm.role == "method" ? "pld" : "ar";
      }
      for (int p = 0; p < 8; ++p) {
        PromptInfo& prompt = run.prompts.emplace_back();
        prompt.id = p + 1, prompt.key = std::to_string(p);
      }
      for (const ArmInfo& arm : run.arms)
        for (const PromptInfo& prompt : run.prompts) {
          SampleRow row;
          row.arm_id = arm.id, row.prompt_id = prompt.id, row.n_decode = 63;
          const double factor = !ours ? 1 : arm.id == 2 ? method : plain;
          row.fastest_ns = 1e8 * speed * factor * (1 + noise * (rng.uniform() - 0.5)) *
                           (1 + static_cast<double>(prompt.id));
          run.samples.push_back(row);
          whole.generations.push_back({.arm_id = arm.id,
                                       .prompt_id = prompt.id,
                                       .sample = 0,
                                       .repeat = 0,
                                       .steps_hash = "same",
                                       .emitted = 63,
                                       .ns = {}});
          for (int k = 0; k < kSteps; ++k)
            whole.generations.back().ns.push_back(row.fastest_ns / kSteps);
        }
    }
  }
  return m;
}

// "pld speed regression: method slower", in the order of the checks.
std::vector<std::string> told(const Measured& m, const GateOptions& options = {}) {
  std::vector<std::string> lines;
  for (const GateCheck& v : lock_step_checks(m.bases, m.news, options).checks) {
    std::string causes;
    for (const Cause c : v.causes) causes += std::string(", ") + to_string(c);
    lines.push_back(v.method + " " + v.metric + " " + to_string(v.outcome) + causes);
  }
  return lines;
}

TEST(LockStepChecks, EveryArmAndEverySpeedup) {
  EXPECT_THAT(told(measured(1, 1)), ElementsAre("ar tok_s ok", "pld speed ok", "pld tok_s ok"));
  EXPECT_THAT(told(measured(1, 1.05)),
              ElementsAre("ar tok_s ok", "pld speed regression, method slower",
                          "pld tok_s regression, method slower"));
  EXPECT_THAT(told(measured(1.05, 1)),
              ElementsAre("ar tok_s regression, AR slower", "pld speed improvement, AR slower",
                          "pld tok_s ok"));
  // What a stored baseline cannot see.
  EXPECT_THAT(told(measured(1.05, 1.05)),
              ElementsAre("ar tok_s regression, AR slower", "pld speed ok, both slower",
                          "pld tok_s regression, method slower, both slower"));
  EXPECT_THAT(told(measured(0.95, 0.95)),
              ElementsAre("ar tok_s improvement, AR faster", "pld speed ok, both faster",
                          "pld tok_s improvement, method faster"));
}

TEST(LockStepChecks, SayWhatTheyFound) {
  const Measured m = measured(1, 1.05);
  const SpeedChecks checks = lock_step_checks(m.bases, m.news, {});
  const GateCheck& speed = checks.checks.at(1);
  // 48 answers of four times with a standard deviation of 0.003 each: a standard error of 0.0008.
  EXPECT_NEAR(*speed.effect, 1 / 1.05 - 1, 0.002);
  EXPECT_LT(*speed.hi, -0.03);
  EXPECT_EQ(speed.n, 6 * 8);
  EXPECT_THAT(speed.reason, HasSubstr("method slower: speedup -4."));
  EXPECT_THAT(speed.reason, HasSubstr("6 sessions in lock step"));
  EXPECT_EQ(checks.margin, 0.03);
}

// A fifth of the steps 25 % slower is 5 % of the whole: what robust means over steps would not see.
TEST(LockStepChecks, ASlowdownOfSomeStepsIsNoSpike) {
  Measured m = measured(1, 1);
  for (LockStepRun& run : m.news)
    for (results::StepTimesRow& g : run.generations)
      if (g.arm_id == 2)
        for (size_t k = 0; k < g.ns.size(); k += 5) g.ns[k] *= 1.25;
  EXPECT_THAT(told(m), ElementsAre("ar tok_s ok", "pld speed regression, method slower",
                                   "pld tok_s regression, method slower"));
}

// Spikes of ten times a step, on either side alike, move nothing.
TEST(LockStepChecks, SpikesAreTheMachines) {
  Measured m = measured(1, 1);
  base::Rng rng(3);
  for (auto* side : {&m.bases, &m.news})
    for (LockStepRun& run : *side)
      for (results::StepTimesRow& g : run.generations)
        for (double& ns : g.ns)
          if (rng.uniform() < 0.02) ns *= 10;
  EXPECT_THAT(told(m), ElementsAre("ar tok_s ok", "pld speed ok", "pld tok_s ok"));
  for (const GateCheck& v : lock_step_checks(m.bases, m.news, {}).checks) {
    EXPECT_EQ(v.long_steps->pairs, 6 * 8 * kSteps);
    EXPECT_GT(v.long_steps->base, 10);
    EXPECT_GT(v.long_steps->now, 10);
    EXPECT_THAT(v.reason, Not(HasSubstr("took more than")));
  }
}

// One step in 21 of an arm, of one side, takes `times` as long.
Measured spiky(std::vector<LockStepRun> Measured::*side, int64_t arm, double times) {
  Measured m = measured(1, 1);
  for (LockStepRun& run : m.*side)
    for (results::StepTimesRow& g : run.generations)
      if (g.arm_id == arm) g.ns[10] *= times;
  return m;
}

// With 9 % lost, 2.4 % are left where steps count as 1.5 times at most: no machine does that to one
// side alone.
TEST(LockStepChecks, LongStepsOfOneBuildAreItsOwn) {
  const Measured m = spiky(&Measured::news, 2, 3);
  EXPECT_THAT(told(m), ElementsAre("ar tok_s ok", "pld speed regression, method slower",
                                   "pld tok_s regression, method slower"));
  const GateCheck times = lock_step_checks(m.bases, m.news, {}).checks.at(2);
  EXPECT_NEAR(*times.effect, 21.0 / 23 - 1, 0.002);
  EXPECT_LT(*times.hi, -0.08);
  EXPECT_LT(*times.p_value, 0.001);
  EXPECT_EQ(times.long_steps->now, 6 * 8);
  EXPECT_EQ(times.long_steps->base, 0);
  EXPECT_THAT(times.reason,
              HasSubstr("; 4.8 % of this build's steps took more than 1.5 times the other's, 0.0 % "
                        "of the other's, and all count in full"));
  // Those of the other build are this one's gain.
  EXPECT_THAT(told(spiky(&Measured::bases, 2, 3)),
              ElementsAre("ar tok_s ok", "pld speed ok", "pld tok_s ok"));
  // Plain decoding that lost them is faster by 9 %, and the speedup as much smaller.
  EXPECT_THAT(told(spiky(&Measured::bases, 1, 3)),
              ElementsAre("ar tok_s ok", "pld speed regression, AR faster", "pld tok_s ok"));
}

// 3.8 % lost: at a margin of as much it is open, at another one it is what it is in full.
TEST(LockStepChecks, LongStepsPassWhereTheyCostLess) {
  const Measured m = spiky(&Measured::news, 2, 1.8);
  GateOptions options;
  options.max_regression = 0.0368;
  EXPECT_THAT(told(m, options),
              ElementsAre("ar tok_s ok", "pld speed inconclusive", "pld tok_s inconclusive"));
  options.max_regression = 0.05;
  EXPECT_THAT(told(m, options), ElementsAre("ar tok_s ok", "pld speed ok", "pld tok_s ok"));
  const GateCheck times = lock_step_checks(m.bases, m.news, options).checks.at(2);
  EXPECT_NEAR(*times.effect, 21 / 21.5 - 1, 0.002);
  EXPECT_THAT(times.reason, HasSubstr("0.0 % of the other's: -3.7 % ["));
}

// Thirty in a row, once: an interruption.
TEST(LockStepChecks, ABurstIsTheMachines) {
  Measured m = measured(1, 1, 12);
  for (size_t k = 0, n = 0; n < 2; ++k)
    if (results::StepTimesRow& g = m.news[3].generations[k]; g.arm_id == 2) {
      for (size_t i = 0; i < 15; ++i) g.ns[i] *= 3;
      ++n;
    }
  const SpeedChecks checks = lock_step_checks(m.bases, m.news, {});
  EXPECT_EQ(checks.checks.at(2).long_steps->now, 30);
  EXPECT_EQ(told(m).at(2), "pld tok_s ok");
  EXPECT_THAT(checks.checks.at(2).reason, Not(HasSubstr("took more than")));
}

// A build that takes other steps is compared by time per token: here 11 parts of 21.
TEST(LockStepChecks, OtherStepsAreComparedByToken) {
  Measured m = measured(1, 1);
  for (LockStepRun& run : m.news)
    for (results::StepTimesRow& g : run.generations)
      if (g.arm_id == 2) g.steps_hash = "other", g.ns.resize(10), g.ns[0] *= 2;
  const SpeedChecks checks = lock_step_checks(m.bases, m.news, {});
  EXPECT_NEAR(*checks.checks.at(2).effect, 21.0 / 11 - 1, 0.01);
}

TEST(LockStepChecks, ASmallChangeIsOpenAndAChangeAtTheMarginIsNoRegression) {
  // 3 % within noise of 3 % is neither proven nor excluded.
  EXPECT_THAT(told(measured(1, 1 / 0.97, 4, 0.06)),
              ElementsAre("ar tok_s ok", "pld speed inconclusive", "pld tok_s inconclusive"));
  EXPECT_THAT(told(measured(1, 1.02, 8)),
              ElementsAre("ar tok_s ok", "pld speed ok", "pld tok_s ok"));
  // One session says nothing about the next one.
  EXPECT_THAT(
      told(measured(1, 1.5, 1)),
      ElementsAre("ar tok_s inconclusive", "pld speed inconclusive", "pld tok_s inconclusive"));
}

TEST(LockStepChecks, MorePlannedLooksAskForMore) {
  // p about 0.01: enough for one look, not for ten.
  const Measured m = measured(1, 1.036, 4, 0.022);
  GateOptions once, often;
  often.looks = 10, often.look = 1;
  const auto outcome = [&](const GateOptions& options) {
    return lock_step_checks(m.bases, m.news, options).checks.at(2).outcome;
  };
  const double p = *lock_step_checks(m.bases, m.news, once).checks.at(2).p_value;
  ASSERT_GT(p, 0.005);
  ASSERT_LT(p, 0.05);
  EXPECT_EQ(outcome(once), Outcome::kRegression);
  EXPECT_EQ(outcome(often), Outcome::kInconclusive);
}

TEST(GateLevel, AllLooksTogetherMayErrAsOftenAsOne) {
  GateOptions options;
  for (options.looks = 1; options.looks < 9; ++options.looks) {
    double sum = 0;
    for (options.look = 0; options.look < options.looks; ++options.look) sum += options.level();
    EXPECT_NEAR(sum, options.alpha, 1e-12) << options.looks << " looks";
    options.look = 0;
    EXPECT_GE(options.level(), options.alpha / 2);
  }
}

// ---- simulated machines ----

const MachineKind& machine(const std::string& name) {
  for (const MachineKind& kind : machine_kinds())
    if (kind.name == name) return kind;
  throw std::runtime_error("no machine " + name);
}

SimulatedRates rates(const std::string& kind, SimulatedWay way, const SimulatedFault& fault,
                     int trials) {
  return simulated_rates(machine(kind), way, fault, usual_size(way), trials, 11);
}

// What issue 34 asks of a quiet virtual machine: of 20 trials, 19 and 0; of 40, 2; three minutes.
TEST(SimulatedGate, LockStepJudgesWhereAStoredBaselineCannot) {
  constexpr int kTrials = 200;
  const std::vector<SimulatedFault> faults = {{1, 1.05}, {1.05, 1}, {1.05, 1.05}};
  for (const char* kind : {"dedicated", "quiet virtual machine", "hosted runner", "shared host"}) {
    SCOPED_TRACE(kind);
    const SimulatedRates unchanged = rates(kind, SimulatedWay::kLockStep, {}, kTrials);
    EXPECT_LE(unchanged.share(unchanged.slower), 0.005);
    EXPECT_LE(unchanged.share(unchanged.inconclusive), 0.05);
    EXPECT_LE(unchanged.median_s, 180);
    for (const SimulatedFault& fault : faults) {
      const SimulatedRates slow = rates(kind, SimulatedWay::kLockStep, fault, kTrials);
      EXPECT_GE(slow.share(slow.slower), 0.95);
      EXPECT_EQ(slow.ok, 0) << "a slowdown of 5 % never passes";
      EXPECT_LE(slow.median_s, 180);
    }
  }
  // The simulation has teeth: the way that the review found wanting fails on it.
  const SimulatedRates red = rates("hosted runner", SimulatedWay::kStored, {}, kTrials);
  EXPECT_GE(red.share(red.slower), 0.03);
  const SimulatedRates missed = rates("hosted runner", SimulatedWay::kStored, {1, 1.05}, kTrials);
  EXPECT_LE(missed.share(missed.slower), 0.7);
  const SimulatedRates all = rates("dedicated", SimulatedWay::kTurns, {1.05, 1.05}, 20);
  EXPECT_EQ(all.slower, 0) << "sessions in turn compare speedups alone";
}

TEST(SimulatedGate, ABadNeighbourIsInconclusiveRatherThanWrong) {
  const SimulatedRates unchanged = rates("bad neighbour", SimulatedWay::kLockStep, {}, 200);
  EXPECT_LE(unchanged.share(unchanged.slower), 0.02);
  const SimulatedRates slow = rates("bad neighbour", SimulatedWay::kLockStep, {1, 1.05}, 200);
  EXPECT_LE(slow.share(slow.ok), 0.02);
}

// One step in twenty takes three times as long: 9 % slower, of which 2.4 % show in steps that count
// as 1.5 times at most.
TEST(SimulatedGate, LongStepsOfOneBuildAreNotOk) {
  const SimulatedFault fault = {.every = 20, .times = 3};
  EXPECT_DOUBLE_EQ(fault.of_answer(), 1.1);
  for (const char* kind : {"dedicated", "quiet virtual machine", "hosted runner", "shared host"}) {
    SCOPED_TRACE(kind);
    const SimulatedRates r = rates(kind, SimulatedWay::kLockStep, fault, 60);
    EXPECT_EQ(r.ok, 0);
    EXPECT_GE(r.share(r.slower), 0.9);
  }
  EXPECT_EQ(rates("bad neighbour", SimulatedWay::kLockStep, fault, 30).ok, 0);
  // A stored baseline sees times of whole answers.
  const SimulatedRates stored = rates("dedicated", SimulatedWay::kStored, fault, 30);
  EXPECT_GE(stored.share(stored.slower), 0.9);
}

// At the margin itself a build may be called slower at most as often as the level says.
TEST(SimulatedGate, TheLevelHoldsAtTheMargin) {
  const double at_margin = 1 / 0.97;
  for (const char* kind : {"quiet virtual machine", "hosted runner, phases"}) {
    const SimulatedRates r = rates(kind, SimulatedWay::kLockStep, {at_margin, at_margin}, 400);
    EXPECT_LE(r.share(r.slower), 0.05 + 0.02) << kind;
  }
}

TEST(NoisyMachine, IsAsNoisyAsItSays) {
  const MachineKind kind = {"test", 0.02, 0.03, 0, 60, 0.01, 0, 0, 0, 0};
  std::vector<double> ratios;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    NoisyMachine m(kind, seed);
    const NoisyMachine::Process process = m.start_process();
    ratios.push_back(std::log(m.generation(process, 1, 1, 0) / m.generation(process, 0, 1, 0)));
  }
  // Standard errors of 2,000 draws of 0.039: 0.0009 of the mean, 0.0006 of the deviation.
  EXPECT_NEAR(base::mean(ratios), 0, 0.003);
  EXPECT_NEAR(base::sample_sd(ratios), std::sqrt(0.02 * 0.02 + 0.03 * 0.03 + 2 * 0.01 * 0.01),
              0.002);
  // Drift: what is a minute apart differs, what is a moment apart does not.
  const MachineKind drifting = {"test", 0, 0, 0.05, 60, 0, 0, 0, 0, 0};
  double near = 0, far = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    NoisyMachine m(drifting, seed);
    const NoisyMachine::Process process = m.start_process();
    const double first = std::log(m.generation(process, 0, 0.1, 0));
    const double second = std::log(m.generation(process, 0, 0.1, 0));
    m.pass(120);
    const double third = std::log(m.generation(process, 0, 0.1, 0));
    near += (second - first) * (second - first), far += (third - second) * (third - second);
  }
  EXPECT_LT(std::sqrt(near / 500), 0.005);
  EXPECT_GT(std::sqrt(far / 500), 0.05);
}

}  // namespace
}  // namespace evalrun::reports
