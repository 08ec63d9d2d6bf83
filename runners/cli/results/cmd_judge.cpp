// evalrun judge RUN: grades of a stored run's answers; evalrun judge A B: which of two is better.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "datasets/dataset.h"
#include "engine/base/home.h"
#include "engine/base/text.h"
#include "results/queries.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/output.h"
#include "runners/cli/results/judge_tables.h"
#include "runners/cli/run_reference.h"
#include "runners/cli/shard_option.h"
#include "runners/cli/units.h"
#include "runners/measure/interrupt.h"
#include "runners/score/judging.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using runners::AskOutcome;
using runners::AskStatus;
using runners::StoredAnswer;

struct JudgeArguments {
  std::vector<std::string> runs, arms;
  std::string arm_a, arm_b, task = "mt_bench", data_root, cache;
  std::string endpoint, model, replies, requests;
  std::vector<std::string> take;
  ShardOption shard;
  int jobs = 4, retries = 6, max_tokens = 2048;
  double timeout_s = 120, max_time_s = 0, first_wait_s = 1;
};

// Temperature and length are part of who judges: another length may cut the verdict off.
std::string judge_id(const JudgeArguments& o) {
  return fmt::format("{} temperature=0 max_tokens={}", o.model, o.max_tokens);
}

std::string prompt_folder(const JudgeArguments& o) {
  const std::string root = datasets::resolve_data_root(o.data_root);
  if (root.empty())
    throw base::usage_error("the judge's prompts lie under a data root, and none is given",
                            "give --data-root DIR or set EVALRUN_DATA; `evalrun data fetch "
                            "mt_bench` downloads them");
  return (std::filesystem::path(root) / "mt_bench").string();
}

std::unique_ptr<evaluators::JudgeClient> make_client(const JudgeArguments& o) {
  if (!o.replies.empty()) return evaluators::make_recorded_judge(o.replies);
  evaluators::HttpJudgeOptions http;
  http.endpoint = o.endpoint;
  http.model = o.model;
  http.key = evaluators::judge_key_from_environment();
  http.max_tokens = o.max_tokens;
  http.timeout_s = o.timeout_s;
  http.retries = o.retries;
  http.first_wait_s = o.first_wait_s;
  http.stop = runners::InterruptGuard::requested;
  return evaluators::make_http_judge(http);
}

// Answers of one run, or a usage error that says what there is.
std::vector<StoredAnswer> answers_of(const RunReference& run, const JudgeArguments& o,
                                     const evaluators::JudgePrompts& prompts) {
  std::vector<StoredAnswer> answers =
      runners::stored_answers(*run.store, run.run_id, o.task, prompts);
  if (!answers.empty()) return answers;
  const std::vector<std::string> tasks = results::tasks(*run.store, run.run_id);
  throw base::usage_error(
      fmt::format("run {} holds no finished answers to {}", run.run_id, o.task),
      fmt::format("it holds {}; choose with --task NAME", fmt::join(tasks, ", ")));
}

std::vector<std::string> arm_labels(const std::vector<StoredAnswer>& answers) {
  std::vector<std::string> labels;
  for (const StoredAnswer& answer : answers)
    if (std::find(labels.begin(), labels.end(), answer.arm) == labels.end())
      labels.push_back(answer.arm);
  return labels;
}

// `wanted` must be an arm; "" is the baseline.
std::string chosen_arm(const std::vector<StoredAnswer>& answers, const std::string& wanted) {
  const std::vector<std::string> labels = arm_labels(answers);
  if (wanted.empty()) {
    for (const StoredAnswer& answer : answers)
      if (answer.role == "baseline") return answer.arm;
    return labels.front();
  }
  if (std::find(labels.begin(), labels.end(), wanted) == labels.end())
    throw base::usage_error(fmt::format("no arm '{}' has answers", wanted),
                            base::suggest(wanted, labels));
  return wanted;
}

// What nobody has answered yet, for a batch service or another day.
int write_requests(const std::string& path, const std::vector<runners::JudgeQuestion>& questions,
                   const results::JudgeReplies& cache) {
  std::string text;
  std::set<std::string> seen;
  for (const runners::JudgeQuestion& q : questions) {
    if (cache.find(q.key) || !seen.insert(q.id()).second) continue;
    const Json line{{"id", q.id()}, {"system", q.request.system}, {"user", q.request.user}};
    text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  base::write_file_atomic(path, text);
  return static_cast<int>(seen.size());
}

// Of several machines, or of a colleague's.
void take_over(const std::vector<std::string>& files,
               const std::vector<runners::JudgeQuestion>& questions, results::JudgeReplies& cache) {
  for (const std::string& file : files) {
    const results::JudgeReplies other(file);
    for (const runners::JudgeQuestion& q : questions)
      if (const auto reply = other.find(q.key); reply && !cache.find(q.key))
        cache.add(q.key, *reply);
  }
}

// Those of this machine. An answer that several arms gave is one question, and goes to one machine.
std::vector<runners::JudgeQuestion> of_shard(std::vector<runners::JudgeQuestion> questions,
                                             const ShardOption& shard) {
  std::map<std::string, int64_t> places;
  std::erase_if(questions, [&](const runners::JudgeQuestion& q) {
    const auto place = places.emplace(q.id(), static_cast<int64_t>(places.size())).first;
    return !shard.takes(place->second);
  });
  return questions;
}

AskOutcome ask(const JudgeArguments& o, const std::vector<runners::JudgeQuestion>& questions,
               results::JudgeReplies& cache, const GlobalOptions& global) {
  runners::AskOptions options;
  options.jobs = o.jobs;
  options.max_time_s = o.max_time_s;
  // Recorded replies are all there or not: every gap is looked at.
  options.give_up_after = o.replies.empty() ? 4 : static_cast<int>(questions.size()) + 1;
  options.stop = runners::InterruptGuard::requested;
  if (global.verbosity >= 0)
    options.on_progress = [](int done, int pending) {
      if (done % 10 == 0 || done == pending) fmt::print(stderr, "judged {}/{}\n", done, pending);
    };
  const runners::InterruptGuard guard;
  const bool all_known = std::all_of(questions.begin(), questions.end(),
                                     [&](const auto& q) { return cache.find(q.key).has_value(); });
  if (all_known) {  // needs nobody: neither an endpoint nor a key
    struct Nobody final : evaluators::JudgeClient {
      evaluators::JudgeReply ask(const std::string&, const evaluators::JudgeRequest&) override {
        return {};
      }
    } nobody;
    return runners::ask_missing(questions, nobody, cache, options);
  }
  return runners::ask_missing(questions, *make_client(o), cache, options);
}

void report_gaps(const AskOutcome& outcome, Context& context) {
  const char* keep = "what was answered is kept; run the same command to go on";
  switch (outcome.status) {
    case AskStatus::kComplete:
      return;
    case AskStatus::kInterrupted:
      context.exit_code = static_cast<int>(base::ExitCode::kInterrupted);
      fmt::print(stderr, "interrupted, {} questions open; {}\n", outcome.unanswered, keep);
      return;
    case AskStatus::kOutOfTime:
      context.exit_code = static_cast<int>(base::ExitCode::kInconclusive);
      fmt::print(stderr, "out of time, {} questions open; {}\n", outcome.unanswered, keep);
      return;
    case AskStatus::kGaveUp:
      context.exit_code = static_cast<int>(base::ExitCode::kData);
      fmt::print(stderr, "error: the judge left {} of {} questions unanswered: {}\n  hint: {}\n",
                 outcome.unanswered, outcome.questions, outcome.problem, keep);
  }
}

Json outcome_json(const AskOutcome& o) {
  return {{"questions", o.questions},
          {"cached", o.cached},
          {"answered", o.answered},
          {"unanswered", o.unanswered}};
}

std::string outcome_text(const AskOutcome& o) {
  return fmt::format("{} questions: {} from the cache, {} asked now, {} open", o.questions,
                     o.cached, o.answered, o.unanswered);
}

// ---- grades ------------------------------------------------------------------------------------

void judge_run(const JudgeArguments& o, Context& context) {
  const RunReference run = find_run(o.runs[0], context.global.db);
  const auto prompts = evaluators::JudgePrompts::load(prompt_folder(o));
  std::vector<StoredAnswer> answers = answers_of(run, o, prompts);
  const std::string baseline = chosen_arm(answers, "");
  if (!o.arms.empty()) {
    for (const std::string& arm : o.arms) chosen_arm(answers, arm);
    std::erase_if(answers, [&](const StoredAnswer& answer) {
      return std::find(o.arms.begin(), o.arms.end(), answer.arm) == o.arms.end();
    });
  }
  results::JudgeReplies cache(o.cache);
  std::vector<runners::JudgeQuestion> questions;
  for (const StoredAnswer& answer : answers)
    for (size_t turn = 0; turn < answer.talk.answers.size(); ++turn)
      questions.push_back(runners::grade_question(prompts, judge_id(o), answer.talk, turn));
  take_over(o.take, questions, cache);
  questions = of_shard(std::move(questions), o.shard);
  if (!o.requests.empty()) {
    print_line(
        fmt::format("{}: {} requests", o.requests, write_requests(o.requests, questions, cache)));
    return;
  }
  const AskOutcome outcome = ask(o, questions, cache, context.global);

  results::ResultStore store(run.store->path());
  std::vector<runners::GradedAnswer> graded;
  for (const StoredAnswer& answer : answers) {
    graded.push_back(runners::grade(answer, prompts, judge_id(o), cache));
    if (graded.back().complete)
      store.put_score(answer.generation_id, runners::score_of(graded.back(), o.model));
  }
  const GradeTables tables = grade_tables(graded, arm_labels(answers), baseline);
  if (context.global.json) {
    print_json_document({{"judge", o.model},
                         {"run", run.run_id},
                         {"task", o.task},
                         {"verdicts", outcome_json(outcome)},
                         {"arms", tables.json()}});
  } else {
    print_line(fmt::format("judge {} · single-v1, temperature 0 · run {} · {} · {}\n", o.model,
                           run.run_id, o.task, outcome_text(outcome)));
    print_line(tables.text());
  }
  report_gaps(outcome, context);
}

// ---- pairs -------------------------------------------------------------------------------------

void judge_two(const JudgeArguments& o, Context& context) {
  const RunReference run_a = find_run(o.runs[0], context.global.db);
  const RunReference run_b = find_run(o.runs[1], context.global.db);
  const auto prompts = evaluators::JudgePrompts::load(prompt_folder(o));
  const std::vector<StoredAnswer> a = answers_of(run_a, o, prompts),
                                  b = answers_of(run_b, o, prompts);
  const std::string arm_a = chosen_arm(a, o.arm_a), arm_b = chosen_arm(b, o.arm_b);
  const std::vector<runners::AnswerPair> pairs = runners::pair_answers(a, arm_a, b, arm_b);
  if (pairs.empty())
    throw base::usage_error(fmt::format("{} and {} have no question in common", arm_a, arm_b),
                            "both runs must have answered the same prompts of one task");
  results::JudgeReplies cache(o.cache);
  std::vector<runners::JudgeQuestion> questions;
  for (const runners::AnswerPair& pair : pairs)
    for (runners::JudgeQuestion& q : runners::questions_of(pair, prompts, judge_id(o)))
      questions.push_back(std::move(q));
  take_over(o.take, questions, cache);
  questions = of_shard(std::move(questions), o.shard);
  if (!o.requests.empty()) {
    print_line(
        fmt::format("{}: {} requests", o.requests, write_requests(o.requests, questions, cache)));
    return;
  }
  const AskOutcome outcome = ask(o, questions, cache, context.global);

  PairTables tables;
  for (const runners::AnswerPair& pair : pairs)
    for (const runners::JudgedPair& judged : runners::judge_pair(pair, prompts, judge_id(o), cache))
      tables.add(judged);
  if (context.global.json) {
    print_json_document({{"judge", o.model},
                         {"a", {{"run", run_a.run_id}, {"arm", arm_a}}},
                         {"b", {{"run", run_b.run_id}, {"arm", arm_b}}},
                         {"task", o.task},
                         {"verdicts", outcome_json(outcome)},
                         {"overall", tables.overall_json()},
                         {"by_category", tables.by_category_json()}});
  } else {
    print_line(fmt::format(
        "judge {} · pair-v2, temperature 0, both orders · {} · {}\nA: {} of run {} · B: {} of run "
        "{}\n",
        o.model, o.task, outcome_text(outcome), arm_a, run_a.run_id, arm_b, run_b.run_id));
    print_line(tables.text());
  }
  report_gaps(outcome, context);
}

void run_judge(JudgeArguments& o, Context& context) {
  if (o.cache.empty()) {
    const std::filesystem::path home = base::home_folder();
    if (home.empty())
      throw base::usage_error("nobody knows where verdicts are kept",
                              "give --cache FILE or set EVALRUN_HOME");
    o.cache = (home / "judge.db").string();
  }
  if (o.model.empty())
    throw base::usage_error("no judge is named",
                            "give --judge-model NAME, e.g. a dated model of "
                            "the server; verdicts are kept by this name");
  if (o.runs.size() == 1)
    judge_run(o, context);
  else
    judge_two(o, context);
}

}  // namespace

void add_judge_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("judge", "MT-Bench grades of a run, or the better one of two");
  auto options = std::make_shared<JudgeArguments>();
  JudgeArguments& o = *options;
  command->add_option("run", o.runs, "One run to grade, or two to compare; named as for compare")
      ->required()
      ->expected(1, 2);
  command->add_option("--judge-model", o.model, "Model that judges; part of every verdict's key");
  command->add_option("--endpoint", o.endpoint, "OpenAI-compatible server, e.g. https://HOST/v1");
  command->add_option("--replies", o.replies, "Recorded replies instead of a server (JSON Lines)");
  command->add_option("--requests", o.requests, "Only write the open requests to this file");
  command->add_option("--task", o.task, "Task whose answers are judged")->capture_default_str();
  command->add_option("--arm", o.arms, "One run: only these arms (default: all)");
  command->add_option("--arm-a", o.arm_a, "Two runs: arm of the first (default: its baseline)");
  command->add_option("--arm-b", o.arm_b, "Two runs: arm of the second (default: its baseline)");
  add_data_root(*command, o.data_root);
  command->add_option("--cache", o.cache, "Verdicts (default: judge.db under EVALRUN_HOME)");
  o.shard.add(*command, "questions",
              "then once without it, with --take FILE for the --cache of each machine");
  command->add_option("--take", o.take, "Verdicts of another --cache, taken over first; repeatable")
      ->check(CLI::ExistingFile)
      ->allow_extra_args(false);
  command->add_option("-j,--jobs", o.jobs, "Requests at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--retries", o.retries, "After 429, 5xx and timeouts, per question")
      ->check(CLI::Range(0, 20))
      ->capture_default_str();
  command->add_option("--retry-wait", o.first_wait_s, "Seconds before the first; doubles")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  command->add_option("--timeout", o.timeout_s, "Seconds for one request")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_option("--max-time", o.max_time_s, "For everything: 90s, 10m, 2h; 0 = no limit")
      ->transform(as_seconds());
  command->add_option("--max-tokens", o.max_tokens, "Of a verdict")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->footer(
      "The key comes from EVALRUN_JUDGE_KEY or OPENAI_API_KEY alone and is stored nowhere. An "
      "answer\n"
      "that was judged before is not judged again, so a lossless method has its baseline's "
      "grades.\n"
      "Interrupt and resume as you like. docs/judge.md\n\nExamples:\n"
      "  evalrun judge latest --endpoint https://api.openai.com/v1 --judge-model gpt-4-0613\n"
      "  evalrun judge before after --judge-model gpt-4-0613 --replies replies.jsonl\n"
      "  evalrun judge latest --judge-model gpt-4-0613 --requests open.jsonl");
  command->callback([options, command, &context] {
    if (options->runs.size() == 1)
      refuse_given(*command, {"--arm-a", "--arm-b"}, "one run: --arm chooses its arms");
    else
      refuse_given(*command, {"--arm"}, "two runs: --arm-a and --arm-b choose theirs");
    if (!options->requests.empty())
      refuse_given(*command,
                   {"--endpoint", "--replies", "--jobs", "--retries", "--retry-wait", "--timeout",
                    "--max-time"},
                   "--requests, which asks nobody");
    if (!options->replies.empty())
      refuse_given(*command, {"--endpoint", "--retries", "--retry-wait", "--timeout"},
                   "--replies, which asks no server");
    run_judge(*options, context);
  });
}

}  // namespace evalrun::cli
