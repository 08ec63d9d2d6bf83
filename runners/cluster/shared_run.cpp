#include "runners/cluster/shared_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "runners/cluster/prompt_sources.h"
#include "runners/cluster/run_parts.h"
#include "runners/plan/shards.h"

namespace evalrun::runners {
namespace {

// Rank 0's: how much of the whole is handed out. What others have measured of it is not known.
class SharedProgress final : public ProgressSink {
 public:
  SharedProgress(ProgressSink& next, base::Clock& clock, Coordinator& coordinator, int processes)
      : next_(next),
        clock_(clock),
        coordinator_(coordinator),
        processes_(processes),
        all_(std::max(1, coordinator.left())),
        begin_ns_(clock.now_ns()) {}
  void left_out(const std::string& method) override { next_.left_out(method); }
  void hopeless(const std::string& why) override { next_.hopeless(why); }
  void warming_up(const std::string& arm) override { next_.warming_up(arm); }
  void generation_done(const std::string& /*arm*/, const std::string& prompt,
                       bool failed) override {
    failed_ += failed ? 1 : 0;
    const double share = 1 - static_cast<double>(coordinator_.left()) / all_;
    next_.working(fmt::format("{} processes{}  {}", processes_,
                              failed_ > 0 ? fmt::format(", {} FAILED here", failed_) : "", prompt),
                  std::min(share, 0.99), 1e-9 * static_cast<double>(clock_.now_ns() - begin_ns_));
  }
  void end() override { next_.end(); }

 private:
  ProgressSink& next_;
  base::Clock& clock_;
  Coordinator& coordinator_;
  int processes_, all_, failed_ = 0;
  int64_t begin_ns_;
};

// Units of which some prompt is not measured.
std::vector<int> units_left(const RunPlan& plan, const std::vector<std::vector<int>>& units,
                            const std::set<std::string>& measured) {
  std::vector<int> left;
  for (size_t u = 0; u < units.size(); ++u)
    if (std::any_of(units[u].begin(), units[u].end(), [&](int p) {
          return measured.count(plan.prompts[static_cast<size_t>(p)].record.key) == 0;
        }))
      left.push_back(static_cast<int>(u));
  return left;
}

// To each process its shard at first, as far as there are enough units.
Dispenser dispenser_of(const RunPlan& plan, const std::vector<std::vector<int>>& units,
                       const std::vector<int>& left, int processes) {
  const int shards = std::min(processes, static_cast<int>(units.size()));
  const std::vector<int> shard_of = cut_plan(plan, shards);
  std::vector<std::vector<int>> queues(static_cast<size_t>(processes));
  for (const int unit : left) {
    const int prompt = units[static_cast<size_t>(unit)].front();
    queues[static_cast<size_t>(shard_of[static_cast<size_t>(prompt)] - 1)].push_back(unit);
  }
  return Dispenser(std::move(queues));
}

struct SharedProcess {
  Messages& messages;
  const PlanRequest& request;
  const RunPlan& plan;
  const RunParts& parts;
  base::Clock& clock;
  RunnerOptions options;

  // What the source gives, into the rank's database. False: not all of it.
  bool measure(SharedSource& source, RunOutcome& outcome) {
    if (!source.has_any()) return true;
    options.source = &source;
    results::ResultStore store(parts.file(messages.rank()));
    outcome = run_plan(request, plan, store, clock, options);
    outcome.planned = outcome.stored_before + outcome.measured;
    return outcome.status == RunStatus::kComplete;
  }
};

SharedOutcome take_part(SharedProcess process, const std::vector<std::vector<int>>& units) {
  SharedOutcome outcome;
  Worker worker(process.messages, units, process.plan.whole.key);
  const bool complete = process.measure(worker, outcome.own);
  worker.done(complete);
  return outcome;
}

SharedOutcome take_lead(SharedProcess process, const std::vector<std::vector<int>>& units) {
  SharedOutcome outcome;
  const RunPlan& plan = process.plan;
  outcome.prompts = static_cast<int>(plan.prompts.size());
  outcome.run_id = process.parts.finished();
  const std::vector<int> left =
      outcome.run_id ? std::vector<int>{} : units_left(plan, units, process.parts.whole_prompts());
  const int processes = process.messages.size();
  Coordinator coordinator(process.messages, units, plan.whole.key,
                          dispenser_of(plan, units, left, processes));
  coordinator.wait_for_plans();
  ProgressSink silent;
  ProgressSink& shown = process.options.progress != nullptr ? *process.options.progress : silent;
  SharedProgress progress(shown, process.clock, coordinator, processes);
  process.options.progress = &progress;
  bool complete = process.measure(coordinator, outcome.own);
  const Coordinator::Ends ends = coordinator.wait_for_all();
  // What a process had in hand when it died, with nobody left to take it.
  if (complete && coordinator.left() > 0) complete = process.measure(coordinator, outcome.own);
  outcome.gone = ends.gone;
  outcome.stopped = !complete || !ends.stopped.empty();
  outcome.stolen = coordinator.stolen();
  if (!outcome.run_id) {
    const std::set<std::string> measured = process.parts.whole_prompts();
    outcome.missing = static_cast<int>(
        std::count_if(plan.prompts.begin(), plan.prompts.end(),
                      [&](const PlannedPrompt& p) { return measured.count(p.record.key) == 0; }));
    if (outcome.missing == 0 && !outcome.stopped) outcome.run_id = process.parts.put_together();
  }
  coordinator.let_go();
  return outcome;
}

}  // namespace

SharedOutcome run_shared(Messages& messages, const PlanRequest& request,
                         const std::string& database, base::Clock& clock,
                         const RunnerOptions& options, const std::string& option) {
  if (!request.suite.endpoints.empty())
    throw base::usage_error(
        fmt::format("{} with endpoints: processes beside each other would load a server that is "
                    "measured one answer at a time",
                    option),
        "measure it by one process, or under load: evalrun load");
  const RunPlan plan = make_plan(request);
  check_can_be_cut(plan, option);
  const RunParts parts(database, plan.whole);
  const SharedProcess process{messages, request, plan, parts, clock, options};
  const std::vector<std::vector<int>> units = plan_units(plan);
  return messages.rank() == 0 ? take_lead(process, units) : take_part(process, units);
}

}  // namespace evalrun::runners
