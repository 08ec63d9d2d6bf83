// Two builds in lock step: sessions of two processes that take turns visit by visit.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>

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
  std::unique_ptr<TurnChild> start(bool ours) const;
  std::string database(bool ours) const { return folder_.file(ours ? "this.db" : "other.db"); }
  std::vector<int64_t> runs() const {  // new databases: sessions are their runs 1, 2, ...
    std::vector<int64_t> ids;
    for (int i = 1; i <= sessions_; ++i) ids.push_back(i);
    return ids;
  }

  const AgainstRequest& request_;
  TemporaryFolder folder_;
  runners::InterruptGuard guard_;
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

// Each turn goes to both, and who is first alternates: from visit to visit, from repeat to repeat
// of a visit and from session to session. So a steady drift cancels within two turns of a prompt.
bool LockStep::session() {
  // The other build first: if it cannot, nothing was loaded twice.
  std::unique_ptr<TurnChild> other = start(false);
  if (sessions_ == 0 && !other->ready()) return false;
  const std::unique_ptr<TurnChild> ours = start(true);
  TurnChild* builds[] = {other.get(), ours.get()};
  for (TurnChild* build : builds)
    if (build->visits() == 0 && !build->ready())
      throw base::data_error(request_.program, "", "took turns before and does no longer",
                             "was it replaced meanwhile? Start the check again");
  for (int turn = 0; turn < 2; ++turn) builds[(sessions_ + turn) % 2]->turn();  // the warm-up
  const int visits = std::max(other->visits(), ours->visits());
  const int round = std::max(1, ours->visits() / ours->repeats());
  for (int v = 0; v < visits; ++v)
    for (int turn = 0; turn < 2; ++turn) {
      TurnChild* build = builds[(v % round + v / round + sessions_ + turn) % 2];
      if (v < build->visits()) build->turn();
    }
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
