// Scores of generations: at once, and by evaluators that run programs after the timed generations.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "evaluators/evaluator.h"
#include "results/store.h"
#include "runners/measure/progress.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// By the evaluators of the prompt that are not deferred and ask no model; without a reference by
// those that need none.
std::vector<results::ScoreRecord> score_now(const PlannedPrompt& planned,
                                            const std::vector<std::string>& texts,
                                            const evaluators::ScoringContext& context);

struct DeferredScores {
  int scored = 0;  // now
  int left = 0;    // kept from being scored by a stop request
  // Why an evaluator could not score here at all; its answers stay unscored, a later run of the
  // same settings takes them up.
  std::vector<std::string> problems;
};

struct DeferredOptions {
  evaluators::ScoringContext context;
  int workers = 0;             // 0 = the cores this process may use
  std::function<bool()> stop;  // begun answers are finished and stored
  ProgressSink* progress = nullptr;
};

// Scores all finished generations of a run that lack a score of a deferred evaluator of their
// prompt, or have one that says the machine was at fault (sandbox_error, toolchain_missing) or that
// was taken under other options (time limits). Of several timing repeats the first is scored. Each
// score is stored as soon as it is known, so an interrupted run goes on where it was. `prompt_ids`:
// the stored rows of plan.prompts.
DeferredScores score_deferred(const RunPlan& plan, const std::vector<int64_t>& prompt_ids,
                              int64_t run_id, results::ResultStore& store, base::Clock& clock,
                              const DeferredOptions& options);

}  // namespace evalrun::runners
