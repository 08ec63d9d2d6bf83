// What the run's models say of finished answers, after the timed generations: the evaluators of
// evaluators/by_model.h.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/clock.h"
#include "results/store.h"
#include "runners/measure/deferred_scores.h"
#include "runners/measure/progress.h"
#include "runners/measure/sessions.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// A plan and its rows in a store, in its order. All must outlive the object.
struct StoredPlan {
  const RunPlan& plan;
  int64_t run_id;
  const std::vector<int64_t>&arm_ids, &prompt_ids;
};

// Whether finished answers lack such scores.
bool lacks_model_scores(const StoredPlan& stored, const results::ResultStore& store);

struct ModelScoreOptions {
  std::function<bool()> stop;  // asked between answers
  ProgressSink* progress = nullptr;
};

// Takes them, each in a session of the model that is asked. Each is stored as soon as it is known.
// A score without a value says why: "no answer", "no reference", "several turns" (of a reference),
// "too long" (for the session), "greedy" (nothing is drawn), "impossible token" (one that top-k or
// top-p cut, which only a rule that is not lossless gives).
DeferredScores score_by_models(const StoredPlan& stored, const Conversation& conversation,
                               results::ResultStore& store, base::Clock& clock,
                               const SessionOf& session_of, const ModelScoreOptions& options);

}  // namespace evalrun::runners
