#include "runners/measure/deferred_scores.h"

#include <map>

#include "engine/base/error.h"
#include "engine/devices.h"
#include "results/generation_queries.h"
#include "runners/score/score_pool.h"

namespace evalrun::runners {

std::vector<results::ScoreRecord> score_now(const PlannedPrompt& planned,
                                            const std::vector<std::string>& texts,
                                            const evaluators::ScoringContext& context) {
  std::vector<results::ScoreRecord> scores;
  for (const std::string& id : planned.evaluators) {
    const evaluators::EvaluatorEntry& judge = evaluators::evaluator_registry().get(id);
    if (judge.info.deferred || judge.info.by_model) continue;
    if (judge.info.needs_reference && !planned.prompt.reference.has_value()) continue;
    scores.push_back(judge.score(planned.prompt, texts, context));
  }
  return scores;
}

DeferredScores score_deferred(const RunPlan& plan, const std::vector<int64_t>& prompt_ids,
                              int64_t run_id, results::ResultStore& store, base::Clock& clock,
                              const DeferredOptions& options) {
  EVALRUN_CHECK(prompt_ids.size() == plan.prompts.size());
  std::vector<results::UnscoredAnswer> answers;
  struct Origin {
    const datasets::Prompt* prompt;
    const evaluators::EvaluatorEntry* judge;
  };
  std::vector<Origin> origins;
  DeferredScores refused;
  std::map<const evaluators::EvaluatorEntry*, bool> asked;
  const auto usable = [&](const evaluators::EvaluatorEntry& judge) {
    const auto [it, is_new] = asked.try_emplace(&judge, true);
    if (is_new && judge.prepare) try {
        judge.prepare(options.context);
      } catch (const base::Error& error) {
        it->second = false;
        refused.problems.push_back(fmt::format("{}: {}", judge.info.id(), error.what()));
      }
    return it->second;
  };
  for (size_t p = 0; p < plan.prompts.size(); ++p)
    for (const std::string& id : plan.prompts[p].evaluators) {
      const evaluators::EvaluatorEntry& judge = evaluators::evaluator_registry().get(id);
      if (!judge.info.deferred || !usable(judge)) continue;
      const results::EvaluatorName name = {judge.info.name, judge.info.version,
                                           judge.options ? judge.options(options.context) : ""};
      for (results::UnscoredAnswer& answer :
           results::unscored_answers(store, run_id, prompt_ids[p], name)) {
        answers.push_back(std::move(answer));
        origins.push_back({&plan.prompts[p].prompt, &judge});
      }
    }
  DeferredScores outcome = std::move(refused);
  if (answers.empty()) return outcome;

  std::vector<ScoreJob> jobs;
  for (size_t i = 0; i < answers.size(); ++i)
    jobs.push_back({origins[i].judge, origins[i].prompt, &answers[i].texts});
  ScorePoolOptions pool;
  pool.workers = options.workers > 0 ? options.workers : engine::allowed_cores();
  pool.stop_requested = options.stop;
  pool.on_score = [&](size_t i, const results::ScoreRecord& score) {
    store.put_score(answers[i].generation_id, score);
    ++outcome.scored;
  };
  if (options.progress != nullptr)
    pool.on_progress = [&](const ScoreProgress& p) {
      options.progress->scoring(static_cast<int>(p.done), static_cast<int>(p.total), p.elapsed_s,
                                p.left_s);
    };
  score_all(jobs, options.context, clock, pool);
  if (options.progress != nullptr) options.progress->end();
  outcome.left = static_cast<int>(jobs.size()) - outcome.scored;
  return outcome;
}

}  // namespace evalrun::runners
