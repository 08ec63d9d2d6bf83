#include "reports/gate/simulated/simulated_gate.h"

#include <algorithm>
#include <optional>

#include "engine/base/stats.h"
#include "reports/gate/equal_repeats.h"
#include "reports/gate/gate_lock_step.h"
#include "reports/gate/gate_speed.h"

namespace evalrun::reports {

namespace {

// The default model on two threads: 64 tokens at 350 tok/s, 1.2 times as fast by the method, and
// what a generation takes besides (prefill, storing).
constexpr double kPlainS = 0.18, kMethodS = 0.15, kAroundS = 0.08;
constexpr int64_t kPlainArm = 1, kMethodArm = 2, kAaArm = 3;
constexpr double kDecoded = 63;
// Of a turn in lock step, which is a step here. Real ones are shorter still.
constexpr int kTurnTokens = 8, kUsualTurns = 64 / kTurnTokens;

// A run of one process, growing by repeats, as load_run() would have it.
class SimulatedRun {
 public:
  SimulatedRun(const SimulatedSize& size, const SimulatedFault& fault)
      : size_(size), fault_(fault) {
    const auto add_arm = [&](int64_t id, const char* label, const char* role) {
      ArmInfo& arm = data_.arms.emplace_back();
      arm.id = id, arm.label = label, arm.role = role, arm.method = id == kMethodArm ? "pld" : "ar";
    };
    add_arm(kPlainArm, "ar", "baseline");
    add_arm(kMethodArm, "pld", "method");
    if (size.aa) add_arm(kAaArm, "ar (A/A)", "aa");
    for (int p = 0; p < size.prompts; ++p) {
      PromptInfo& prompt = data_.prompts.emplace_back();
      prompt.id = p + 1, prompt.key = prompt.name = std::to_string(p);
    }
    for (const ArmInfo& arm : data_.arms)
      for (const PromptInfo& prompt : data_.prompts) {
        SampleRow& s = data_.samples.emplace_back();
        s.arm_id = arm.id, s.prompt_id = prompt.id, s.n_repeats = 0;
        s.n_decode = kDecoded, s.n_tokens = kDecoded + 1;
        s.steps = s.emitted = kDecoded;
      }
    times_.resize(data_.samples.size());
  }
  // The next visit of this arm and prompt.
  void visit(NoisyMachine& machine, const NoisyMachine::Process& process, size_t arm,
             size_t prompt) {
    const bool method = data_.arms[arm].id == kMethodArm;
    SampleRow& s = data_.samples[arm * data_.prompts.size() + prompt];
    std::vector<double>& times = times_[arm * data_.prompts.size() + prompt];
    const double nominal = nominal_s(method) * (method ? fault_.of_answer() : 1);
    times.push_back(1e9 * machine.generation(process, method ? 1 : 0, nominal, kAroundS));
    // As many repeats of both sides are compared (equal_repeats.h).
    s.fastest_ns = expected_fastest(times, std::min(size_.repeats, static_cast<int>(times.size())));
    s.decode_ns = s.fastest_ns;
    s.n_repeats = static_cast<int>(times.size());
  }
  void repeat(NoisyMachine& machine, const NoisyMachine::Process& process) {
    for (size_t p = 0; p < data_.prompts.size(); ++p)
      for (size_t i = 0; i < data_.arms.size(); ++i)
        visit(machine, process, (i + p) % data_.arms.size(), p);
  }
  const RunData& data() const { return data_; }
  // A visit in turns: its next part, of `parts`.
  void part(NoisyMachine& machine, const NoisyMachine::Process& process, size_t arm, size_t prompt,
            size_t parts) {
    if (steps_.empty() || steps_.back().arm_id != data_.arms[arm].id ||
        steps_.back().prompt_id != data_.prompts[prompt].id || steps_.back().ns.size() == parts)
      steps_.push_back({.arm_id = data_.arms[arm].id,
                        .prompt_id = data_.prompts[prompt].id,
                        .sample = 0,
                        .repeat = 0,
                        .steps_hash = "",
                        .emitted = static_cast<int64_t>(kDecoded),
                        .ns = {}});
    const bool method = data_.arms[arm].id == kMethodArm;
    const bool spike = method && fault_.every > 0 && ++method_parts_ % fault_.every == 0;
    const double nominal = nominal_s(method) * (spike ? fault_.times : 1);
    steps_.back().ns.push_back(1e9 *
                               machine.part(process, method ? 1 : 0, nominal, 1.0 / kUsualTurns));
  }
  LockStepRun in_lock_step() && { return {std::move(data_), std::move(steps_)}; }
  size_t arms() const { return data_.arms.size(); }

 private:
  double nominal_s(bool method) const {
    return method ? kMethodS * fault_.method : kPlainS * fault_.plain;
  }

  SimulatedSize size_;
  SimulatedFault fault_;
  RunData data_;
  std::vector<std::vector<double>> times_;  // of the repeats, as data_.samples
  std::vector<results::StepTimesRow> steps_;
  int64_t method_parts_ = 0;
};

SimulatedVerdict verdict_of(const SpeedChecks& checks) {
  Outcome worst = Outcome::kOk;
  for (const GateCheck& v : checks.checks) worst = std::min(worst, v.outcome);
  return worst == Outcome::kRegression     ? SimulatedVerdict::kSlower
         : worst == Outcome::kInconclusive ? SimulatedVerdict::kInconclusive
                                           : SimulatedVerdict::kOk;
}

// One look after the other at what `grow` adds, as the commands do.
template <typename Grow, typename Judge>
SimulatedVerdict look(GateOptions options, const Grow& grow, const Judge& judge) {
  SimulatedVerdict verdict = SimulatedVerdict::kInconclusive;
  for (; options.look < options.looks && verdict == SimulatedVerdict::kInconclusive;
       ++options.look) {
    grow();
    verdict = judge(options);
  }
  return verdict;
}

SimulatedDecision check_stored(NoisyMachine& machine, const SimulatedFault& fault,
                               const SimulatedSize& size, const GateOptions& options) {
  std::vector<RunData> baselines;
  for (int i = 0; i < size.baseline_sessions; ++i) {
    SimulatedRun baseline(size, {});
    const NoisyMachine::Process before = machine.start_process();
    for (int r = 0; r < size.repeats; ++r) baseline.repeat(machine, before);
    baselines.push_back(baseline.data());
    machine.start_session();
  }
  const double begin = machine.now_s();
  machine.pass(size.start_s);
  const NoisyMachine::Process now = machine.start_process();
  const auto measure = [&] {
    SimulatedRun run(size, fault);
    return look(
        options,
        [&] {
          for (int r = 0; r < size.repeats; ++r) run.repeat(machine, now);
        },
        [&](const GateOptions& level) {
          return verdict_of(speed_checks(baselines, {run.data()}, level));
        });
  };
  SimulatedDecision d;
  d.verdict = measure();
  // A red verdict is measured once more.
  if (d.verdict == SimulatedVerdict::kSlower && measure() != SimulatedVerdict::kSlower)
    d.verdict = SimulatedVerdict::kInconclusive;
  d.sessions = 1;
  d.seconds = machine.now_s() - begin;
  return d;
}

SimulatedDecision check_with_sessions(NoisyMachine& machine, SimulatedWay way,
                                      const SimulatedFault& fault, const SimulatedSize& size,
                                      const GateOptions& options) {
  std::vector<RunData> bases, news;
  std::vector<LockStepRun> stepped_bases, stepped_news;
  SimulatedDecision d;
  const auto parts = static_cast<size_t>(size.tokens / kTurnTokens);
  const auto session = [&] {
    SimulatedRun a(size, {}), b(size, fault);
    const NoisyMachine::Process of_a = machine.start_process(), of_b = machine.start_process();
    const auto start = [&] { machine.pass(size.start_s); };
    if (way == SimulatedWay::kTurns) {
      for (int turn = 0; turn < 2; ++turn) {
        const bool ours = (d.sessions + turn) % 2 == 1;
        start();
        for (int r = 0; r < size.repeats; ++r) (ours ? b : a).repeat(machine, ours ? of_b : of_a);
      }
    } else {
      start(), start();
      for (int r = 0; r < size.repeats; ++r)
        for (int p = 0, v = 0; p < size.prompts; ++p)
          for (size_t i = 0; i < a.arms(); ++i, ++v) {
            machine.pass(2 * kAroundS);
            for (size_t turn = 0; turn < 2 * parts; ++turn) {
              // AB BA AB
              const bool ours = (static_cast<size_t>(v + r + d.sessions) + (turn + 1) / 2) % 2 == 1;
              (ours ? b : a)
                  .part(machine, ours ? of_b : of_a, (i + static_cast<size_t>(p)) % a.arms(),
                        static_cast<size_t>(p), parts);
            }
          }
    }
    if (way == SimulatedWay::kTurns) {
      bases.push_back(a.data());
      news.push_back(b.data());
    } else {
      stepped_bases.push_back(std::move(a).in_lock_step());
      stepped_news.push_back(std::move(b).in_lock_step());
    }
    ++d.sessions;
  };
  d.verdict = look(
      options,
      [&] {
        for (int i = 0; i < size.sessions; ++i) session();
      },
      [&](const GateOptions& now) {
        return verdict_of(way == SimulatedWay::kTurns
                              ? speed_checks(bases, news, now)
                              : lock_step_checks(stepped_bases, stepped_news, now));
      });
  d.seconds = machine.now_s();
  return d;
}

}  // namespace

SimulatedSize usual_size(SimulatedWay way) {
  switch (way) {
    case SimulatedWay::kStored:
      return {};
    case SimulatedWay::kTurns:
      return {.sessions = 3};
    case SimulatedWay::kLockStep:
      return {.prompts = 8, .repeats = 1, .sessions = 6, .looks = 6, .aa = false};
  }
  return {};
}

SimulatedDecision simulate_check(const MachineKind& kind, SimulatedWay way,
                                 const SimulatedFault& fault, const SimulatedSize& size,
                                 uint64_t seed) {
  NoisyMachine machine(kind, seed);
  GateOptions options;
  options.looks = size.looks;
  return way == SimulatedWay::kStored ? check_stored(machine, fault, size, options)
                                      : check_with_sessions(machine, way, fault, size, options);
}

SimulatedRates simulated_rates(const MachineKind& kind, SimulatedWay way,
                               const SimulatedFault& fault, const SimulatedSize& size, int trials,
                               uint64_t seed) {
  SimulatedRates rates;
  std::vector<double> seconds;
  for (int i = 0; i < trials; ++i) {
    const SimulatedDecision d = simulate_check(
        kind, way, fault, size, base::combine_seeds({seed, static_cast<uint64_t>(i)}));
    ++rates.trials;
    rates.ok += d.verdict == SimulatedVerdict::kOk;
    rates.slower += d.verdict == SimulatedVerdict::kSlower;
    rates.inconclusive += d.verdict == SimulatedVerdict::kInconclusive;
    seconds.push_back(d.seconds);
  }
  if (!seconds.empty()) rates.median_s = base::median(seconds);
  return rates;
}

}  // namespace evalrun::reports
