// evalrun score: scores generations that were made elsewhere, which needs no model and no database;
// or the answers of a stored run against its baseline arm's (score_run.cpp).
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "datasets/json_lines.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/devices.h"
#include "engine/session.h"
#include "evaluators/generations_file.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/output.h"
#include "runners/cli/results/score_run.h"
#include "runners/cli/shard_option.h"
#include "runners/measure/interrupt.h"
#include "runners/measure/progress.h"
#include "runners/score/score_export.h"
#include "runners/score/score_pool.h"
#include "runners/score/score_summary.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using evaluators::EvaluatorEntry;
using results::ScoreRecord;

constexpr size_t kProblemsShown = 20;
constexpr double kSecondsBetweenLines = 10;  // of progress, without a terminal

struct ScoreArguments {
  evaluators::ScoringContext scoring;
  std::string run, against;
  std::string dataset, generations, data_root, export_format, out;
  std::vector<std::string> evaluators;
  int workers = 0;
  ShardOption shard;
};

const std::vector<std::pair<std::string, runners::ExportFormat>>& export_formats() {
  static const std::vector<std::pair<std::string, runners::ExportFormat>> kFormats = {
      {"lm-eval", runners::ExportFormat::kLmEval},
      {"spec-bench", runners::ExportFormat::kSpecBench},
      {"human-eval", runners::ExportFormat::kHumanEval}};
  return kFormats;
}

std::vector<const EvaluatorEntry*> choose_evaluators(const ScoreArguments& options,
                                                     const datasets::DatasetInfo& info) {
  const std::vector<std::string>& names =
      options.evaluators.empty() ? info.evaluators : options.evaluators;
  if (names.empty())
    throw base::usage_error(fmt::format("data set {} has no evaluator of its own", info.name),
                            "name one with --evaluator; `evalrun list evaluators` shows all");
  std::vector<const EvaluatorEntry*> chosen;
  for (const std::string& name : names) {
    const EvaluatorEntry* entry = &evaluators::find_evaluator(name);
    if (entry->info.by_model)
      throw base::usage_error(fmt::format("evaluator {} asks the model for every token", name),
                              "it is one of `evalrun run --evaluators`, which has the model");
    if (std::find(chosen.begin(), chosen.end(), entry) == chosen.end()) chosen.push_back(entry);
  }
  return chosen;
}

Json value_of(const ScoreRecord& score) { return score.value ? Json(*score.value) : Json(nullptr); }

// The first evaluator's verdict, and the values of the others beside it.
Json json_line(const evaluators::OutsideGeneration& generation,
               const std::vector<const EvaluatorEntry*>& judges,
               const std::vector<ScoreRecord>& scores) {
  const ScoreRecord& first = scores.front();
  Json row{{"id", generation.id},
           {"sample", generation.sample},
           {"evaluator", judges.front()->info.id()},
           {"status", first.status},
           {"value", value_of(first)},
           {"extracted", first.extracted}};
  if (!first.detail.empty()) row["detail"] = first.detail;
  if (first.suspicious) row["suspicious"] = true;
  for (size_t e = 0; e < judges.size(); ++e) {
    if (judges[e]->info.name == "gsm8k_strict") row["strict"] = value_of(scores[e]);
    if (judges[e]->info.name == "gsm8k_flexible") row["flexible"] = value_of(scores[e]);
  }
  if (judges.size() > 1)
    for (size_t e = 0; e < judges.size(); ++e)
      row["scores"][judges[e]->info.id()] = value_of(scores[e]);
  return row;
}

void show_progress(const runners::ScoreProgress& progress, bool terminal, double& last_shown_s) {
  const bool finished = progress.done == progress.total;
  const double every_s = terminal ? 0.2 : kSecondsBetweenLines;
  // Silent when there was nothing to wait for.
  if (progress.elapsed_s - last_shown_s < every_s && !(finished && last_shown_s > 0)) return;
  last_shown_s = progress.elapsed_s;
  fmt::print(stderr, "{}[{}/{}] {} elapsed, {} left{}", terminal ? "\r\x1b[K" : "", progress.done,
             progress.total, base::format_duration(progress.elapsed_s),
             base::format_duration(progress.left_s), terminal && !finished ? "" : "\n");
}

std::string status_text(const runners::ScoreSummary& summary) {
  std::string text;
  for (const auto& [status, n] : summary.statuses)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, status);
  if (summary.n_suspicious > 0) text += fmt::format(" ({} suspicious)", summary.n_suspicious);
  return text;
}

// All scores of the generations that were scored before a stop; fewer than there are generations
// then.
using Scores = std::vector<std::vector<ScoreRecord>>;

Scores score_generations(const evaluators::GenerationsFile& file,
                         const datasets::LoadedDataset& set,
                         const std::vector<const EvaluatorEntry*>& judges, int workers,
                         const evaluators::ScoringContext& scoring, const Context& context) {
  std::vector<runners::ScoreJob> jobs;
  for (const evaluators::OutsideGeneration& generation : file.generations)
    for (const EvaluatorEntry* judge : judges)
      jobs.push_back({judge, &set.prompts[generation.prompt], &generation.texts});
  Scores scores;
  std::vector<ScoreRecord> row;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  double last_shown_s = 0;
  const runners::InterruptGuard interrupt;
  runners::ScorePoolOptions pool;
  pool.workers = workers;
  pool.stop_requested = &runners::InterruptGuard::requested;
  pool.on_score = [&](size_t, const ScoreRecord& score) {
    row.push_back(score);
    if (row.size() < judges.size()) return;
    if (context.global.json) print_json(json_line(file.generations[scores.size()], judges, row));
    scores.push_back(std::exchange(row, {}));
  };
  if (context.global.verbosity >= 0)
    pool.on_progress = [&](const runners::ScoreProgress& progress) {
      show_progress(progress, terminal, last_shown_s);
    };
  base::SteadyClock clock;
  runners::score_all(jobs, scoring, clock, pool);
  return scores;
}

std::vector<runners::ScoreSummary> summarise(const evaluators::GenerationsFile& file,
                                             const Scores& scores, size_t n_judges) {
  std::vector<runners::ScoreSummary> summaries;
  for (size_t e = 0; e < n_judges; ++e) {
    std::vector<runners::JudgedAnswer> answers;
    for (size_t i = 0; i < scores.size(); ++i)
      answers.push_back({file.generations[i].prompt, &scores[i][e]});
    summaries.push_back(runners::summarise(answers));
  }
  return summaries;
}

void print_table(const std::vector<const EvaluatorEntry*>& judges,
                 const std::vector<runners::ScoreSummary>& summaries) {
  std::vector<std::vector<std::string>> rows;
  for (size_t e = 0; e < judges.size(); ++e) {
    const runners::ScoreSummary& s = summaries[e];
    const auto number = [](const std::optional<double>& v) {
      return v ? fmt::format("{:.4f}", *v) : std::string("-");
    };
    rows.push_back({judges[e]->info.id(), number(s.value), number(s.standard_error),
                    std::to_string(s.n_prompts), std::to_string(s.n_answers), judges[e]->info.unit,
                    status_text(s)});
  }
  print_line(aligned_table(
      {"evaluator", "value", "std. error", "prompts", "answers", "unit", "statuses"}, rows));
}

void print_problems(const std::vector<std::string>& problems) {
  for (size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i)
    fmt::print(stderr, "error: {}\n", problems[i]);
  if (problems.size() > kProblemsShown)
    fmt::print(stderr, "error: ... and {} more lines\n", problems.size() - kProblemsShown);
}

void write_export(const ScoreArguments& options, const datasets::LoadedDataset& set,
                  const evaluators::GenerationsFile& file,
                  const std::vector<const EvaluatorEntry*>& judges, const Scores& scores) {
  runners::ExportRequest request;
  for (const auto& [name, format] : export_formats())
    if (name == options.export_format) request.format = format;
  request.set = &set;
  request.generations = std::span(file.generations).first(scores.size());
  request.evaluators = judges;
  request.scores = scores;
  request.model_id = std::filesystem::path(options.generations).stem().string();
  request.unix_time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  base::write_file_atomic(options.out, runners::export_generations(request));
}

void run_score(const ScoreArguments& options, Context& context) {
  const bool outside = !options.dataset.empty() || !options.generations.empty();
  if (!options.against.empty() || !options.run.empty()) {
    if (options.against.empty() || outside || !options.export_format.empty())
      throw base::usage_error("a stored run is scored against its baseline arm, and nothing else",
                              "evalrun score RUN --against ar; its answers have their other scores "
                              "from evalrun run");
    return score_run({options.run, options.against, options.evaluators, options.workers}, context);
  }
  if (options.dataset.empty() || options.generations.empty())
    throw base::usage_error("nothing to score: --task and --generations are required",
                            "or a stored run: evalrun score RUN --against ar");
  if (options.export_format.empty() != options.out.empty())
    throw base::usage_error("--export and --out go together",
                            "--export says in which format, --out into which file");
  const datasets::LoadedDataset set =
      datasets::load_dataset(options.dataset, datasets::resolve_data_root(options.data_root));
  const std::vector<const EvaluatorEntry*> judges = choose_evaluators(options, set.info);
  evaluators::GenerationsFile file = evaluators::read_generations(
      datasets::maybe_gunzip(base::read_file(options.generations), options.generations),
      options.generations, set);
  // All samples of a prompt by one machine: means and errors are by prompt.
  std::erase_if(file.generations, [&](const evaluators::OutsideGeneration& generation) {
    return !options.shard.takes(static_cast<int64_t>(generation.prompt));
  });
  print_problems(file.problems);

  warn_if_unsafe(options.scoring);
  for (const EvaluatorEntry* judge : judges)
    if (judge->prepare) judge->prepare(options.scoring);
  const int workers = options.workers > 0 ? options.workers : engine::allowed_cores();
  const Scores scores = score_generations(file, set, judges, workers, options.scoring, context);
  const std::vector<runners::ScoreSummary> summaries = summarise(file, scores, judges.size());
  if (!options.out.empty()) write_export(options, set, file, judges, scores);

  std::vector<bool> has_answer(set.prompts.size(), false);
  for (const evaluators::OutsideGeneration& generation : file.generations)
    has_answer[generation.prompt] = true;
  const auto n_prompts = std::count(has_answer.begin(), has_answer.end(), true);
  const size_t n_missing = set.prompts.size() - static_cast<size_t>(n_prompts);
  const std::string coverage = fmt::format(
      "{} ({}): {} of {} prompts, {} generations{}{}", set.info.name, set.verification, n_prompts,
      set.prompts.size(), file.generations.size(),
      file.problems.empty() ? "" : fmt::format(", left out: {}", file.problems.size()),
      scores.size() < file.generations.size() ? fmt::format(", stopped after {}", scores.size())
                                              : "");
  if (context.global.json) {
    if (context.global.verbosity >= 0 && (n_missing > 0 || !file.problems.empty()))
      fmt::print(stderr, "{}\n", coverage);
  } else {
    print_line(coverage + "\n");
    print_table(judges, summaries);
  }
  const bool stopped = std::any_of(summaries.begin(), summaries.end(),
                                   [](const auto& summary) { return summary.stopped; });
  if (scores.size() < file.generations.size())
    context.exit_code = static_cast<int>(base::ExitCode::kInterrupted);
  else if (!file.problems.empty())
    context.exit_code = static_cast<int>(base::ExitCode::kData);
  else if (stopped)
    context.exit_code = static_cast<int>(base::ExitCode::kEnvironment);
}

}  // namespace

void add_score_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand(
      "score", "Score generations made elsewhere, or a run against its baseline");
  auto options = std::make_shared<ScoreArguments>();
  command
      ->add_option("run", options->run,
                   "With --against: number, run:N, label or key (default: the newest run)")
      ->option_text("[RUN]");
  command->add_option("--against", options->against,
                      "ar: score a stored run's answers by their likeness to its baseline arm's");
  command->add_option("--task", options->dataset, "Task they answer, e.g. gsm8k, jsonl:FILE");
  command->add_option("--generations", options->generations,
                      "JSON Lines with id, text and optionally sample");
  command
      ->add_option("--evaluator", options->evaluators,
                   "Evaluators (default: those of the task); the first is the line's own value")
      ->delimiter(',');
  add_data_root(*command, options->data_root);
  add_scoring_options(*command, options->scoring);
  command->add_option("-j,--jobs", options->workers, "Answers scored at once (default: all cores)")
      ->check(CLI::Range(1, 1024));
  options->shard.add(*command, "prompts", "the lines of --json of all of them are those of one");
  std::vector<std::string> formats;
  for (const auto& [name, format] : export_formats()) formats.push_back(name);
  command
      ->add_option("--export", options->export_format,
                   "Also write generations and scores as this harness does, to --out; the model's "
                   "name there is that of the file of --generations")
      ->check(CLI::IsMember(formats));
  command->add_option("--out", options->out, "File for --export");
  command->footer(
      "A line: {\"id\": \"gsm8k/17\", \"sample\": 0, \"text\": \"... #### 18\"}; text is a list "
      "for\n"
      "several turns. Ids are the set's own (Python/0, HumanEval/3, gsm8k/<row>) or those of "
      "evalrun.\n"
      "With --json, one line per generation: id, sample, evaluator, status, value, extracted of "
      "the\n"
      "first evaluator; for GSM8K also strict and flexible; with several evaluators also scores.\n"
      "A line that cannot be used is reported and left out, and the exit code is 7.\n\n"
      "With --against ar, every other arm's answer is scored with the baseline arm's answer to "
      "the\n"
      "same prompt, repeat and sample as reference (rouge1, rouge2, rougeL, bleu, or --evaluator)\n"
      "and stored as NAME-vs-baseline; evalrun report shows the means.\n\nExamples:\n"
      "  evalrun score --task gsm8k --generations answers.jsonl\n"
      "  evalrun score --task xsum --generations answers.jsonl --json > scores.jsonl\n"
      "  evalrun score --task jsonl:mine.jsonl --generations a.jsonl --evaluator "
      "bleu,rougeL@pltrdy-1.0.1\n"
      "  evalrun score --task gsm8k --generations a.jsonl --export lm-eval --out samples.jsonl\n"
      "  evalrun score latest --against ar");
  command->callback([options, command, &context] {
    if (!options->against.empty() && options->dataset.empty() && options->generations.empty())
      refuse_given(*command,
                   {"--data-root", "--allow-unsafe", "--time-scale", "--tool-folder",
                    "--fix-go-imports", "--export", "--out", "--shard"},
                   "a stored run, whose answers are compared as texts");
    run_score(*options, context);
  });
}

}  // namespace evalrun::cli
