// The steps of several arms along the same answers: arms of one model that gave the same tokens,
// because decoding is lossless and greedy or because the run is a replay. A token's place in the
// answer then means the same for all of them.
#pragma once
#include <string>
#include <vector>

#include "reports/data/run_data.h"
#include "reports/predict/step_trace.h"
#include "results/store.h"

namespace evalrun::reports {

struct SharedTurn {
  int tokens = 0;                // emitted by steps
  std::vector<TracedTurn> arms;  // as SharedAnswers::arms
};

struct SharedAnswer {
  int64_t prompt_id = 0;
  int sample = 0;
  std::vector<SharedTurn> turns;
};

struct SharedAnswers {
  std::vector<const ArmInfo*> arms;  // plain decoding first, then those that draft
  std::vector<SharedAnswer> answers;
  int left_out = 0;                // answers that one arm lacks, or gave other tokens to
  std::vector<std::string> notes;  // arms that are not here, and why
};

// Of the run's baseline and the methods of its model. Of several repeats the one of median decode
// time is taken. Empty without a baseline. `run` must outlive the result.
SharedAnswers load_shared_answers(const results::ResultStore& store, const RunData& run);

}  // namespace evalrun::reports
