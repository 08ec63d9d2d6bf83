// Two builds in lock step: sessions of two processes that take turns every few steps.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "engine/base/clock.h"
#include "runners/cli/gate/gate_against.h"
#include "runners/cli/gate/gate_environment.h"
#include "runners/cli/gate/temporary_folder.h"
#include "runners/cli/gate/turn_child.h"
#include "runners/measure/interrupt.h"

namespace evalrun::cli {
namespace {

class LockStep {
 public:
  explicit LockStep(const AgainstRequest& request) : request_(request), folder_("against") {}
  // False where the other build cannot take turns.
  bool session();
  int sessions() const { return sessions_; }
  reports::GateResult judge(const reports::GateOptions& gate) const;
  void judge_machine(GateOutcome& outcome) const;

 private:
  using Builds = std::array<TurnChild*, 2>;  // the other one, this one
  std::unique_ptr<TurnChild> start(bool ours) const;
  void visit(const Builds& builds, int visit, size_t first);
  std::string database(bool ours) const { return folder_.file(ours ? "this.db" : "other.db"); }
  std::vector<int64_t> runs() const {  // new databases: sessions are their runs 1, 2, ...
    std::vector<int64_t> ids;
    for (int i = 1; i <= sessions_; ++i) ids.push_back(i);
    return ids;
  }

  const AgainstRequest& request_;
  TemporaryFolder folder_;
  runners::InterruptGuard guard_;
  base::SteadyClock clock_;
  int sessions_ = 0;
};

std::unique_ptr<TurnChild> LockStep::start(bool ours) const {
  std::vector<std::string> words = {ours ? own_program() : request_.program, "run"};
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add(request_.arguments);
  add(request_.lock_step_arguments);
  add({"--no-aa", "--no-resume", "--db", database(ours), "--label",
       fmt::format("session {}", sessions_ + 1)});
  add({ours && !request_.fault.empty() ? "--lock-step=" + request_.fault : "--lock-step"});
  const std::string name =
      fmt::format("{} build, session {}", ours ? "this" : "other", sessions_ + 1);
  return std::make_unique<TurnChild>(name, words, folder_.file(ours ? "this.log" : "other.log"),
                                     request_.patience_s);
}

// A turn lasts so long at least: far shorter than what a shared machine's speed needs to change
// (some tenths of a second), far longer than handing over (a tenth of a millisecond).
constexpr double kTurnS = 5e-3;
constexpr int kMostSteps = 64;

// Both builds answer one prompt by one method. Each turn goes to both, as many steps of each, and
// who is first changes from turn to turn: a steady drift cancels within two of them. Prompts are
// read in turns of their own.
void LockStep::visit(const Builds& builds, int visit, size_t first) {
  std::array<bool, 2> done = {visit >= builds[0]->visits(), visit >= builds[1]->visits()};
  for (size_t turn = 0; turn < 2; ++turn)
    if (const size_t b = (first + turn) % 2; !done[b])
      done[b] = builds[b]->begin(builds[1 - b]->processor_ns());
  int steps = 1;  // of a turn: what takes kTurnS differs from method to method
  for (size_t next = first + 1; !done[0] || !done[1]; ++next) {
    double shortest = std::numeric_limits<double>::infinity();
    for (size_t turn = 0; turn < 2; ++turn) {
      const size_t b = (next + turn) % 2;
      if (done[b]) continue;
      const int64_t begin = clock_.now_ns();
      done[b] = builds[b]->go_on(steps, builds[1 - b]->processor_ns());
      // The last turn of an answer may hold fewer steps.
      if (!done[b])
        shortest = std::min(shortest, 1e-9 * static_cast<double>(clock_.now_ns() - begin));
    }
    if (shortest < kTurnS) steps = std::min(2 * steps, kMostSteps);
  }
}

bool LockStep::session() {
  // The other build first: if it cannot, nothing was loaded twice.
  std::unique_ptr<TurnChild> other = start(false);
  if (sessions_ == 0 && !other->ready()) return false;
  const std::unique_ptr<TurnChild> ours = start(true);
  const Builds builds = {other.get(), ours.get()};
  for (TurnChild* build : builds)
    if (build->visits() == 0 && !build->ready())
      throw base::data_error(request_.program, "", "took turns before and does no longer",
                             "was it replaced meanwhile? Start the check again");
  for (size_t turn = 0; turn < 2; ++turn)
    builds[(static_cast<size_t>(sessions_) + turn) % 2]->begin(0);  // the warm-up
  // Who reads a prompt first alternates: by visit, by repeat of a visit, by session.
  const int round = std::max(1, ours->visits() / ours->repeats());
  const int visits = std::max(other->visits(), ours->visits());
  for (int v = 0; v < visits; ++v)
    visit(builds, v, static_cast<size_t>(v % round + v / round + sessions_));
  for (TurnChild* build : builds) build->finish();
  ++sessions_;
  return true;
}

reports::GateResult LockStep::judge(const reports::GateOptions& gate) const {
  // The other build may write an older schema: opening for writing takes it along.
  const results::ResultStore other(database(false)), current(database(true));
  return reports::evaluate_gate({other, runs()}, {current, runs()}, gate);
}

void LockStep::judge_machine(GateOutcome& outcome) const {
  const results::ResultStore other(database(false)), current(database(true));
  std::vector<MeasuredRun> measured;
  for (const int64_t run : runs()) {
    measured.push_back({other, run, fmt::format("session {}, other build", run)});
    measured.push_back({current, run, fmt::format("session {}, this build", run)});
  }
  judge_environment(measured, outcome, measured.size() / 2 + 1);
}

}  // namespace

std::optional<GateOutcome> check_in_lock_step(const AgainstRequest& request) {
  LockStep lock_step(request);
  const int per_look = request.sessions.value_or(kLockStepBudget.sessions);
  reports::GateOptions gate = request.gate;
  gate.lock_step = true;
  gate.looks = 1 + request.max_extra_runs.value_or(kLockStepBudget.extra_runs);
  if (!request.fault.empty()) gate.faults = reports::Faults::kInclude;
  GateOutcome outcome;
  outcome.baseline = request.program;
  outcome.way = GateWay::kLockStep;
  outcome.baseline_run = outcome.run_id = 1;
  do {
    for (int i = 0; i < per_look; ++i) {
      spdlog::info("session {} of {} at most, in lock step with {}", lock_step.sessions() + 1,
                   per_look * gate.looks, request.program);
      if (!lock_step.session()) return std::nullopt;
    }
    gate.look = outcome.looks;
    outcome.result = lock_step.judge(gate);
    ++outcome.looks;
  } while (outcome.looks < gate.looks && outcome.result.more_repeats_help());
  outcome.sessions = lock_step.sessions();
  outcome.code = outcome.result.code;
  outcome.note = fmt::format("{} sessions of each build, in lock step", outcome.sessions);
  lock_step.judge_machine(outcome);
  return outcome;
}

}  // namespace evalrun::cli
