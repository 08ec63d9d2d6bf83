// Scoring many answers on several threads: evaluators that run programs take seconds an answer.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "evaluators/evaluator.h"

namespace evalrun::runners {

// One answer and one judge of it. What is pointed at must stay until score_all() is back.
struct ScoreJob {
  const evaluators::EvaluatorEntry* evaluator = nullptr;
  const datasets::Prompt* prompt = nullptr;
  const std::vector<std::string>* texts = nullptr;  // one per turn
};

struct ScoreProgress {
  size_t done = 0, total = 0;
  double elapsed_s = 0;
  double left_s = 0;  // estimate from the mean so far
};

struct ScorePoolOptions {
  int workers = 1;  // >= 1
  // All called on the calling thread, never two at once.
  // A score as soon as it and all before it are known: index into the jobs, ascending.
  std::function<void(size_t, const results::ScoreRecord&)> on_score;
  std::function<void(const ScoreProgress&)> on_progress;  // after every score, in any order
  std::function<bool()> stop_requested;                   // asked several times a second
};

// Scores in the order of the jobs; nothing for those that a stop request kept from being begun.
// Begun ones are finished. An exception of an evaluator ends the work and is thrown here.
std::vector<std::optional<results::ScoreRecord>> score_all(
    std::span<const ScoreJob> jobs, const evaluators::ScoringContext& context, base::Clock& clock,
    const ScorePoolOptions& options);

}  // namespace evalrun::runners
