#include "runners/measure/model_scores.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "evaluators/evaluator.h"
#include "results/generation_queries.h"
#include "runners/measure/text_likelihood.h"

namespace evalrun::runners {
namespace {

using ScoringModel = std::shared_ptr<const engine::Model>;

// An answer, and the evaluators that it lacks.
struct AnswerToScore {
  results::UnscoredAnswer answer;
  size_t prompt = 0;
  std::vector<const evaluators::EvaluatorInfo*> wanted;
};

std::vector<AnswerToScore> answers_to_score(const StoredPlan& stored,
                                            const results::ResultStore& store) {
  std::vector<AnswerToScore> all;
  for (size_t p = 0; p < stored.plan.prompts.size(); ++p) {
    std::map<int64_t, AnswerToScore> of_prompt;  // by generation
    for (const std::string& id : stored.plan.prompts[p].evaluators) {
      const evaluators::EvaluatorInfo& info = evaluators::evaluator_registry().get(id).info;
      if (!info.by_model) continue;
      for (results::UnscoredAnswer& answer : results::unscored_answers(
               store, stored.run_id, stored.prompt_ids[p], {info.name, info.version, ""})) {
        AnswerToScore& entry = of_prompt[answer.generation_id];
        entry.prompt = p;
        entry.wanted.push_back(&info);
        entry.answer = std::move(answer);
      }
    }
    for (auto& [generation, entry] : of_prompt) all.push_back(std::move(entry));
  }
  return all;
}

class ModelScorer {
 public:
  ModelScorer(const StoredPlan& stored, const Conversation& conversation,
              const SessionOf& session_of)
      : stored_(stored), conversation_(conversation), session_of_(session_of) {}

  results::ScoreRecord score(const AnswerToScore& entry, const evaluators::EvaluatorInfo& info) {
    results::ScoreRecord record;
    record.evaluator = info.name;
    record.version = info.version;
    const bool of_reference = info.name == "reference_nll", mean = of_reference || is_nll(info);
    if (!mean && stored_.plan.suite.sampling.greedy()) {
      record.status = "greedy";
      return record;
    }
    const ScoringModel& model =
        is_nll(info) ? stored_.plan.arms.front().model : arm_of(entry).model;
    const Found& found = of_reference ? reference(entry.prompt, model) : answer(entry, model);
    record.status = found.status;
    if (!found.likelihood) return record;
    const TextLikelihood& of = *found.likelihood;
    record.facts = fmt::format(R"({{"tokens":{}}})", of.tokens);
    if (mean)
      record.value = of.nll / static_cast<double>(of.tokens);
    else if (of.impossible > 0)
      record.status = "impossible token";
    else
      record.value = info.name == "surprise" ? of.surprise : of.rare;
    return record;
  }

 private:
  struct Found {
    std::optional<TextLikelihood> likelihood;
    std::string status = "ok";  // why there is none
  };

  static bool is_nll(const evaluators::EvaluatorInfo& info) { return info.name == "answer_nll"; }
  const PlannedArm& arm_of(const AnswerToScore& entry) const {
    const auto at = std::find(stored_.arm_ids.begin(), stored_.arm_ids.end(), entry.answer.arm_id);
    EVALRUN_CHECK(at != stored_.arm_ids.end(), "an answer of arm {}", entry.answer.arm_id);
    return stored_.plan.arms[static_cast<size_t>(at - stored_.arm_ids.begin())];
  }

  // Of the last turn. Lossless arms give one answer to a prompt, which is computed once.
  const Found& answer(const AnswerToScore& entry, const ScoringModel& model) {
    if (entry.prompt != prompt_) answers_.clear();
    prompt_ = entry.prompt;
    const auto [it, is_new] = answers_.try_emplace(std::pair(model.get(), entry.answer.tokens));
    if (!is_new) return it->second;
    if (entry.answer.tokens.empty() || entry.answer.tokens.back().empty()) {
      it->second.status = "no answer";
      return it->second;
    }
    std::vector<std::string> earlier = entry.answer.texts;
    earlier.pop_back();
    return it->second = likelihood(entry.prompt, earlier, entry.answer.tokens.back(), model);
  }

  const Found& reference(size_t prompt, const ScoringModel& model) {
    const auto [it, is_new] = references_.try_emplace(std::pair(model.get(), prompt));
    if (!is_new) return it->second;
    const datasets::Prompt& asked = stored_.plan.prompts[prompt].prompt;
    if (!asked.reference.has_value()) {
      it->second.status = "no reference";
    } else if (asked.turns.size() > 1) {
      it->second.status = "several turns";
    } else {
      const std::vector<int32_t> text = conversation_.encode_answer(*asked.reference);
      if (text.empty())
        it->second.status = "no reference";
      else
        it->second = likelihood(prompt, {}, text, model);
    }
    return it->second;
  }

  Found likelihood(size_t prompt, const std::vector<std::string>& earlier,
                   const std::vector<int32_t>& text, const ScoringModel& model) {
    const datasets::Prompt& asked = stored_.plan.prompts[prompt].prompt;
    const std::vector<int32_t> ids =
        conversation_.encode(asked, conversation_.render(asked, earlier));
    engine::Session& session = session_of_(model);
    if (ids.size() + text.size() > static_cast<size_t>(session.capacity()))
      return {std::nullopt, "too long"};
    return {text_likelihood(session, ids, text, stored_.plan.suite.sampling), "ok"};
  }

  const StoredPlan& stored_;
  const Conversation& conversation_;
  const SessionOf& session_of_;
  size_t prompt_ = 0;  // of answers_
  std::map<std::pair<const engine::Model*, std::vector<std::vector<int32_t>>>, Found> answers_;
  std::map<std::pair<const engine::Model*, size_t>, Found> references_;  // by model and prompt
};

}  // namespace

bool lacks_model_scores(const StoredPlan& stored, const results::ResultStore& store) {
  return !answers_to_score(stored, store).empty();
}

DeferredScores score_by_models(const StoredPlan& stored, const Conversation& conversation,
                               results::ResultStore& store, base::Clock& clock,
                               const SessionOf& session_of, const ModelScoreOptions& options) {
  const std::vector<AnswerToScore> todo = answers_to_score(stored, store);
  DeferredScores outcome;
  for (const AnswerToScore& entry : todo) outcome.left += static_cast<int>(entry.wanted.size());
  const int total = outcome.left;
  ModelScorer scorer(stored, conversation, session_of);
  const int64_t begin = clock.now_ns();
  for (const AnswerToScore& entry : todo) {
    if (options.stop && options.stop()) break;
    for (const evaluators::EvaluatorInfo* info : entry.wanted) {
      store.put_score(entry.answer.generation_id, scorer.score(entry, *info));
      ++outcome.scored;
      --outcome.left;
    }
    if (options.progress == nullptr) continue;
    const double elapsed = 1e-9 * static_cast<double>(clock.now_ns() - begin);
    options.progress->scoring(outcome.scored, total, elapsed,
                              elapsed / outcome.scored * outcome.left);
  }
  if (options.progress != nullptr && total > 0) options.progress->end();
  return outcome;
}

}  // namespace evalrun::runners
