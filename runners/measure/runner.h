// Executes a plan: warm-up, interleaved arms, conversations, scores, one transaction per
// generation, resume.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/session.h"
#include "evaluators/evaluator.h"
#include "results/store.h"
#include "runners/measure/progress.h"
#include "runners/measure/prompt_source.h"
#include "runners/measure/sessions.h"
#include "runners/measure/turns.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

enum class RunStatus { kComplete, kInterrupted, kOutOfTime };

struct RunOutcome {
  int64_t run_id = 0;
  std::string run_key;
  RunStatus status = RunStatus::kComplete;
  int planned = 0, stored_before = 0, measured = 0, failed = 0;
  int scored = 0;    // after the generations, by evaluators that run programs or ask a model
  int unscored = 0;  // such scores that were left undone
  std::vector<std::string> scoring_problems;  // why an evaluator could not score on this machine
  // Arms whose draft model has another vocabulary that shares few tokens with the target's.
  std::vector<std::string> few_common_tokens = {};
  double steal_share = 0;  // of all cores' time while measuring
};

struct RunnerOptions {
  double max_time_s = 0;  // 0 = no limit; checked between blocks
  // True = finish the prompt, in a run of batches the generation, abandon a batch, and return
  // (Ctrl-C).
  std::function<bool()> stop;
  ProgressSink* progress = nullptr;
  // Says which prompts are measured, and when; the plan's whole schedule without one.
  PromptSource* source = nullptr;
  Turns* turns = nullptr;       // waits for its turn before the warm-up and before every visit
  double row_cost_seconds = 0;  // for the T(n) table of measure_row_cost(); 0 = no table
  std::string row_cost_cache;   // file of earlier tables, "" = none
  evaluators::ScoringContext scoring;
  int score_workers = 0;  // for evaluators that run programs; 0 = the cores allowed
};

class Runner {
 public:
  // Adds run, arms and prompts to the store and finds out what is already there. Everything must
  // outlive the runner.
  Runner(const RunPlan& plan, const Conversation& conversation, results::ResultStore& store,
         base::Clock& clock, RunnerOptions options);
  ~Runner();

  int pending() const;
  // Whether stored answers wait for a score that a model of the run gives.
  bool asks_models() const;
  // Measures what is pending, each arm in its model's session, which is asked for before anything
  // is measured and must have capacity >= plan.capacity, and a sequence for each slot of the
  // largest batch. A session serves all arms of its model, reset in between. A generation that
  // throws becomes a row with status "failed: ...", in a batch all that are under way do, and the
  // run goes on; errors of the store, a DeviceFault and a server that is gone end the run (nothing
  // stored is lost, and the generation at hand is measured when the run is resumed).
  RunOutcome run(const SessionOf& session_of);
  // The same for a plan whose arms all decode one model.
  RunOutcome run(engine::Session& session);
  // When nothing is pending: no session is needed. Scores that are missing are taken, but for those
  // that a model gives.
  RunOutcome finish_without_measuring();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Fills in plan.row_cost, tables of all batches and the speed of memory included, for the planned
// session of the request's target, from the cache or by measuring; a tuned target has the same
// shape, so that it costs the same. Call before any session exists: its idle threads would be in
// the way. Nothing where all arms are servers. Fails by a DeviceFault alone; without a table the
// run is the same, and plan.row_cost->problem says why there is none.
void measure_row_cost(const PlanRequest& request, const RunPlan& plan,
                      const RunnerOptions& options);

// Row costs, sessions and run of a plan that `request` was made into.
RunOutcome run_plan(const PlanRequest& request, const RunPlan& plan, results::ResultStore& store,
                    base::Clock& clock, const RunnerOptions& options);
// The plan, too: what `evalrun run` and `evalrun check` do.
RunOutcome run_suite(const PlanRequest& request, results::ResultStore& store, base::Clock& clock,
                     const RunnerOptions& options);

}  // namespace evalrun::runners
