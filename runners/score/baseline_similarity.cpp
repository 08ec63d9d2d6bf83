#include "runners/score/baseline_similarity.h"

#include "engine/base/error.h"

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

// Texts of the last turns; the answer of a failed counterpart is NULL.
std::vector<Pair> read_pairs(const results::ResultStore& store, int64_t run_id, int& unpaired) {
  std::vector<Pair> pairs;
  store.query(
      "SELECT g.id, a.label, p.task, p.name, g.repeat, g.sample,"
      "  (SELECT text FROM turn WHERE generation_id = g.id ORDER BY idx DESC LIMIT 1),"
      "  (SELECT text FROM turn WHERE generation_id = b.id ORDER BY idx DESC LIMIT 1),"
      "  b.id IS NULL "
      "FROM v_answer g JOIN arm a ON a.id = g.arm_id JOIN prompt p ON p.id = g.prompt_id "
      "JOIN arm base ON base.run_id = g.run_id AND base.role = 'baseline' "
      "LEFT JOIN generation b ON b.arm_id = base.id AND b.prompt_id = g.prompt_id "
      "  AND b.repeat = g.repeat AND b.sample = g.sample AND b.status = 'ok' AND b.fault = '' "
      "WHERE g.run_id = ? AND g.fault = '' AND a.id <> base.id "
      "ORDER BY a.id, p.id, g.sample",
      {run_id}, [&](const results::Row& row) {
        if (row.integer(8) != 0) {
          ++unpaired;
          return true;
        }
        Pair pair;
        pair.of.generation_id = row.integer(0);
        pair.of.arm = row.text(1);
        pair.of.task = row.text(2);
        pair.of.prompt = row.text(3);
        pair.of.repeat = static_cast<int>(row.integer(4));
        pair.of.sample = static_cast<int>(row.integer(5));
        pair.texts = {row.text(6)};
        pair.prompt.reference = row.text(7);
        pairs.push_back(std::move(pair));
        return true;
      });
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
