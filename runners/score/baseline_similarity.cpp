#include "runners/score/baseline_similarity.h"

#include "engine/base/error.h"
#include "results/generation_queries.h"

namespace evalrun::runners {
namespace {

struct Pair {
  SimilarityScore of;  // all but the score
  datasets::Prompt prompt;
  std::vector<std::string> texts;
};

void check_judges(const std::vector<const evaluators::EvaluatorEntry*>& judges) {
  for (const evaluators::EvaluatorEntry* judge : judges)
    if (!judge->info.similarity)
      throw base::usage_error(
          fmt::format("{} does not measure how alike two texts are", judge->info.id()),
          "against the baseline arm: rouge and bleu, of any convention");
}

std::vector<Pair> read_pairs(const results::ResultStore& store, int64_t run_id, int& unpaired) {
  std::vector<Pair> pairs;
  for (results::AnswerPairRow& row : results::answers_beside_baseline(store, run_id)) {
    if (!row.baseline_text) {
      ++unpaired;
      continue;
    }
    Pair& pair = pairs.emplace_back();
    pair.of.generation_id = row.generation_id;
    pair.of.arm = std::move(row.arm);
    pair.of.task = std::move(row.task);
    pair.of.prompt = std::move(row.prompt);
    pair.of.repeat = row.repeat;
    pair.of.sample = row.sample;
    pair.texts = {std::move(row.text)};
    pair.prompt.reference = std::move(row.baseline_text);
  }
  return pairs;
}

}  // namespace

std::vector<const evaluators::EvaluatorEntry*> similarity_evaluators() {
  std::vector<const evaluators::EvaluatorEntry*> judges;
  for (const char* id :
       {"rouge1@rouge_score-0.1.2", "rouge2@rouge_score-0.1.2", "rougeL@rouge_score-0.1.2", "bleu"})
    judges.push_back(&evaluators::find_evaluator(id));
  return judges;
}

SimilarityOutcome score_against_baseline(
    const results::ResultStore& store, int64_t run_id,
    const std::vector<const evaluators::EvaluatorEntry*>& judges, base::Clock& clock,
    const ScorePoolOptions& pool) {
  check_judges(judges);
  SimilarityOutcome outcome;
  const std::vector<Pair> pairs = read_pairs(store, run_id, outcome.unpaired);
  if (pairs.empty())
    throw base::usage_error(
        fmt::format("run {} has no answer to compare with one of its baseline arm", run_id),
        outcome.unpaired > 0 ? "the baseline arm has not finished any of them: resume the run"
                             : "measure a method beside ar: evalrun run --methods");
  outcome.answers = static_cast<int>(pairs.size());
  std::vector<ScoreJob> jobs;
  for (const Pair& pair : pairs)
    for (const evaluators::EvaluatorEntry* judge : judges)
      jobs.push_back({judge, &pair.prompt, &pair.texts});
  const auto scores = score_all(jobs, {}, clock, pool);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!scores[i]) {
      outcome.stopped = true;
      continue;
    }
    outcome.scores.push_back(pairs[i / judges.size()].of);
    results::ScoreRecord& score = outcome.scores.back().score;
    score = *scores[i];
    score.evaluator += kVsBaseline;
  }
  return outcome;
}

}  // namespace evalrun::runners
