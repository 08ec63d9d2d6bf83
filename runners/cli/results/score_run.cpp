#include "runners/cli/results/score_run.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "engine/base/text.h"
#include "engine/devices.h"
#include "engine/session.h"
#include "results/queries.h"
#include "runners/cli/output.h"
#include "runners/cli/run_reference.h"
#include "runners/measure/interrupt.h"
#include "runners/score/baseline_similarity.h"
#include "runners/score/score_summary.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using runners::SimilarityScore;

std::string baseline_label(const results::ResultStore& store, int64_t run_id) {
  for (const results::ArmRow& arm : results::arms(store, run_id))
    if (arm.record.role == "baseline") return arm.record.label;
  throw base::usage_error(fmt::format("run {} has no baseline arm", run_id));
}

// Quality is compared with the baseline arm's, also that of arms of a tuned target.
void check_against(const std::string& against, const std::string& label) {
  std::string lower = against;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower != "ar" && lower != "baseline" && against != label)
    throw base::usage_error(
        fmt::format("--against {}: answers are compared with the baseline arm", against),
        fmt::format("--against ar, which is '{}' in this run", label));
}

void print_scores(const std::vector<SimilarityScore>& scores) {
  for (const SimilarityScore& s : scores)
    print_json({{"generation", s.generation_id},
                {"arm", s.arm},
                {"task", s.task},
                {"prompt", s.prompt},
                {"repeat", s.repeat},
                {"sample", s.sample},
                {"evaluator", s.score.evaluator + "@" + s.score.version},
                {"status", s.score.status},
                {"value", s.score.value ? Json(*s.score.value) : Json(nullptr)}});
}

void print_means(const std::vector<SimilarityScore>& scores) {
  std::vector<std::tuple<std::string, std::string, std::string>> order;  // arm, task, evaluator
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<runners::JudgedAnswer>>
      answers;
  std::map<std::string, size_t> prompts;
  for (const SimilarityScore& s : scores) {
    const auto key = std::tuple(s.arm, s.task, s.score.evaluator + "@" + s.score.version);
    if (!answers.contains(key)) order.push_back(key);
    const size_t prompt = prompts.try_emplace(s.prompt, prompts.size()).first->second;
    answers[key].push_back({prompt, &s.score});
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& key : order) {
    const runners::ScoreSummary summary = runners::summarise(answers[key]);
    const auto number = [](const std::optional<double>& v) {
      return v ? fmt::format("{:.4f}", *v) : std::string("-");
    };
    const auto& [arm, task, evaluator] = key;
    rows.push_back({arm, task, evaluator, number(summary.value), number(summary.standard_error),
                    std::to_string(summary.n_answers)});
  }
  print_line(aligned_table({"arm", "task", "evaluator", "value", "std. error", "answers"}, rows));
}

}  // namespace

void score_run(const ScoreRunOptions& options, Context& context) {
  const RunReference run = find_run(options.run, context.global.db);
  check_against(options.against, baseline_label(*run.store, run.run_id));
  std::vector<const evaluators::EvaluatorEntry*> judges;
  for (const std::string& name : options.evaluators) {
    const evaluators::EvaluatorEntry* judge = &evaluators::find_evaluator(name);
    if (std::find(judges.begin(), judges.end(), judge) == judges.end()) judges.push_back(judge);
  }
  if (judges.empty()) judges = runners::similarity_evaluators();

  const runners::InterruptGuard interrupt;
  runners::ScorePoolOptions pool;
  pool.workers = options.workers > 0 ? options.workers : engine::allowed_cores();
  pool.stop_requested = &runners::InterruptGuard::requested;
  base::SteadyClock clock;
  const runners::SimilarityOutcome outcome =
      runners::score_against_baseline(*run.store, run.run_id, judges, clock, pool);
  std::vector<std::pair<int64_t, results::ScoreRecord>> stored;
  for (const SimilarityScore& s : outcome.scores) stored.emplace_back(s.generation_id, s.score);
  results::ResultStore(run.store->path()).put_scores(stored);

  if (context.global.json) {
    print_scores(outcome.scores);
  } else {
    print_line(fmt::format(
        "run {}: {} answers against those of the baseline arm{}{}\n", run.run_id, outcome.answers,
        outcome.unpaired > 0 ? fmt::format(", left out without a counterpart: {}", outcome.unpaired)
                             : "",
        outcome.stopped ? ", stopped early" : ""));
    print_means(outcome.scores);
  }
  if (outcome.stopped) context.exit_code = static_cast<int>(base::ExitCode::kInterrupted);
}

}  // namespace evalrun::cli
