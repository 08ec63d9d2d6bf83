// How alike each arm's answers are to the baseline arm's: for methods and settings that change the
// text on purpose, where a reference would measure something else. Nothing is generated here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "evaluators/evaluator.h"
#include "results/store.h"
#include "runners/score/score_pool.h"

namespace evalrun::runners {

// After the evaluator's name, so that these scores are never taken for those against a reference:
// "rougeL-vs-baseline".
inline constexpr const char* kVsBaseline = "-vs-baseline";

// rouge1, rouge2 and rougeL by Google's convention, which counts repeated words, and BLEU.
std::vector<const evaluators::EvaluatorEntry*> similarity_evaluators();

struct SimilarityScore {
  int64_t generation_id = 0;
  std::string arm, task, prompt;
  int repeat = 0, sample = 0;
  results::ScoreRecord score;
};

struct SimilarityOutcome {
  std::vector<SimilarityScore> scores;  // by arm, prompt, sample, then in the order of `judges`
  int answers = 0;                      // compared, or to be compared when stopped
  int unpaired = 0;  // answers left out: the baseline arm has not finished their counterpart
  bool stopped = false;
};

// Scores the judged answer (the first finished repeat) of every other arm, last turn, with the
// baseline arm's of the same prompt, repeat and sample as reference. Throws usage_error: the run
// has no baseline arm or nothing beside it, or a judge measures no likeness of texts.
SimilarityOutcome score_against_baseline(
    const results::ResultStore& store, int64_t run_id,
    const std::vector<const evaluators::EvaluatorEntry*>& judges, base::Clock& clock,
    const ScorePoolOptions& pool);

}  // namespace evalrun::runners
