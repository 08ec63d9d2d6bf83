#include "runners/cli/measure/tune_method.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "datasets/spec.h"
#include "engine/base/units.h"
#include "methods/registration.h"
#include "reports/data/pairing.h"
#include "runners/cli/command_line.h"
#include "runners/cli/instruments.h"
#include "runners/cli/measure/measured_part.h"
#include "runners/cli/output.h"
#include "runners/cli/units.h"
#include "runners/machine/environment.h"
#include "runners/plan/auto_method.h"
#include "runners/train/method_race.h"

namespace evalrun::cli {
namespace {

// Those that need nothing but the target, and those with trained weights where there are some, at
// settings that go by what rows cost here.
const std::vector<std::string>& default_candidates() {
  static const std::vector<std::string> all = {"pld:adaptive=true,candidates=3,match=frequent",
                                               "suffix:adaptive=true,alpha=4",
                                               "pia:adaptive=true",
                                               "lookahead:adaptive=true,pool_from_prompt=true",
                                               "recycling:tree=auto",
                                               "eagle2",
                                               "medusa",
                                               "hybrid:drafts=pld(match=recent)+eagle2"};
  return all;
}

struct MethodArguments {
  ModelOptions model;
  std::vector<std::string> methods, tasks = {"samples"};
  std::string data_root;
  int limit = 64, max_new = 64;
  double seconds = 1800, error = 0.05;
};

// As tune parameters, every measurement is a run of its own in the database with a part of the
// prompts. Its key follows from what is measured, so that the same command goes on from what an
// earlier one has stored.
class MethodTuner {
 public:
  MethodTuner(const MethodArguments& options, const GlobalOptions& global)
      : options_(options),
        global_(global),
        model_(options.model.load()),
        draft_(options.model.load_draft()),
        instruments_(global),
        begin_ns_(instruments_.clock().now_ns()) {
    find_candidates();
  }

  void run() {
    // Refused before hours are spent on what could not be kept.
    const runners::ChoiceKey key = runners::choice_key_of(request_of(candidates_, "all"));
    results::ResultStore store(global_.db);
    store_ = &store;
    runners::MethodRace race;
    race.methods = static_cast<int>(candidates_.size());
    race.prompts = half_;
    race.error = options_.error;
    race.measure = [this](const std::vector<size_t>& methods, int begin, int end) {
      return logs_of(methods, begin, end);
    };
    race.stop = [this] { return elapsed() > options_.seconds; };
    race.progress = [this, ends = race.ends()](const runners::MethodRace::Round& round) {
      show_round(round, ends);
    };
    found_ = race.run();
    if (found_.winner)
      confirmed_ = measure({candidates_[*found_.winner]}, half_, half_ + fresh_).front();
    keep(key);
    report();
  }

 private:
  double elapsed() { return 1e-9 * static_cast<double>(instruments_.clock().now_ns() - begin_ns_); }

  runners::PlanRequest request_of(const std::vector<std::string>& specs,
                                  const std::string& part) const {
    runners::PlanRequest request;
    runners::Suite& suite = request.suite;
    suite.methods = {"ar"};
    std::vector<std::string>& list =
        part == "candidates" && options_.methods.empty() ? suite.optional_methods : suite.methods;
    list.insert(list.end(), specs.begin(), specs.end());
    for (const std::string& task : options_.tasks) suite.tasks.push_back({.task = task});
    suite.limit = options_.limit;
    suite.max_new = options_.max_new;
    request.session = options_.model.session_options(0);
    request.data_root = datasets::resolve_data_root(options_.data_root);
    request.label = "tune method";
    request.nonce = "prompts " + part;
    request.target = model_;
    request.draft = draft_;
    complete_search(request, "--methods");
    return request;
  }

  // Those that can be built for this model.
  void find_candidates();
  std::vector<reports::Pairing> measure(const std::vector<std::string>& specs, int begin, int end);
  std::vector<std::vector<double>> logs_of(const std::vector<size_t>& methods, int begin, int end);
  void show_round(const runners::MethodRace::Round& round, const std::vector<int>& ends);
  void keep(const runners::ChoiceKey& key);
  std::optional<reports::Estimate> estimate() const;
  std::string name_of(const std::optional<size_t>& racer) const {
    return racer ? candidates_[*racer] : "ar";
  }
  nlohmann::ordered_json json() const;
  void report() const;
  void print_rounds() const;
  void print_methods() const;
  std::string run_line(const std::string& method) const;

  const MethodArguments& options_;
  const GlobalOptions& global_;
  const std::shared_ptr<const engine::Model> model_, draft_;
  Instruments instruments_;
  const int64_t begin_ns_;
  results::ResultStore* store_ = nullptr;
  std::vector<std::string> candidates_, left_out_;
  int half_ = 0, fresh_ = 0;  // prompts of the race, and that confirm
  int raced_ = 0;             // generations of the race so far, plain decoding's included
  runners::MethodRace::Result found_;
  std::optional<reports::Pairing> confirmed_;
  std::string chosen_, file_;
};

void MethodTuner::find_candidates() {
  const std::vector<std::string>& asked =
      options_.methods.empty() ? default_candidates() : options_.methods;
  const runners::RunPlan all = runners::make_plan(request_of(asked, "candidates"));
  left_out_ = all.left_out;
  for (const runners::PlannedArm& arm : all.arms) {
    if (arm.record.role != "method" || arm.record.method == reports::kTunedPlain) continue;
    const std::string values = arm.record.params.empty() ? "" : ":" + arm.record.params;
    const std::string spec = methods::parse_method(arm.record.method + values).label();
    const std::string why = arm.model != model_             ? "decodes another model"
                            : arm.record.lossless == "none" ? "changes the answers"
                                                            : "";
    if (why.empty()) {
      candidates_.push_back(spec);
    } else if (options_.methods.empty()) {
      left_out_.push_back(fmt::format("{} ({})", spec, why));
    } else {
      throw base::usage_error(fmt::format("--methods: {} {}", spec, why),
                              "name methods that give plain decoding's answers, only faster");
    }
  }
  for (const std::string& method : left_out_) spdlog::info("left out: {}", method);
  if (candidates_.empty())
    throw base::usage_error("--methods: nothing to choose from but plain decoding",
                            "evalrun list methods says what there is");
  half_ = static_cast<int>(all.prompts.size()) / 2;
  fresh_ = static_cast<int>(all.prompts.size()) - half_;
  if (half_ < 2)
    throw base::usage_error(
        fmt::format("{} prompts: two halves of two at least are needed", all.prompts.size()),
        "raise --limit, or give other --tasks");
}

// Plain decoding and the methods on some prompts, paired, in order of `specs`.
std::vector<reports::Pairing> MethodTuner::measure(const std::vector<std::string>& specs, int begin,
                                                   int end) {
  std::vector<reports::Pairing> pairings = measure_part(
      request_of(specs, fmt::format("{} to {}", begin, end)), begin, end, *store_, instruments_);
  EVALRUN_CHECK(pairings.size() == specs.size(), "{} arms of {} methods", pairings.size(),
                specs.size());
  return pairings;
}

// ln of speedups by method and prompt. All answers are the same, so that a prompt of which nothing
// was decoded is missing for all methods.
std::vector<std::vector<double>> MethodTuner::logs_of(const std::vector<size_t>& methods, int begin,
                                                      int end) {
  std::vector<std::string> specs;
  for (const size_t method : methods) specs.push_back(candidates_[method]);
  std::vector<std::vector<double>> logs;
  for (const reports::Pairing& pairing : measure(specs, begin, end))
    logs.push_back(reports::log_ratios(reports::values_of(pairing.prompts)));
  raced_ += (end - begin) * static_cast<int>(methods.size() + 1);
  return logs;
}

// With the time that is left at most: when nothing more is dropped.
void MethodTuner::show_round(const runners::MethodRace::Round& round,
                             const std::vector<int>& ends) {
  const size_t left = round.raced.size() - round.dropped.size();
  const bool over = left + (round.plain_left ? 1 : 0) == 1 || round.prompts == half_;
  const double open =
      (over ? 0 : static_cast<double>((half_ - round.prompts) * static_cast<int>(left + 1))) +
      2.0 * fresh_;
  const auto place = std::find(ends.begin(), ends.end(), round.prompts) - ends.begin() + 1;
  spdlog::info(
      "round {} of at most {}, {} prompts: {} leads with {:.2f}x, {} of {} left; {} more "
      "at most",
      place, ends.size(), round.prompts, name_of(round.leader), std::exp(round.leader_log_speedup),
      left, candidates_.size(), base::format_duration(elapsed() / raced_ * open));
}

std::optional<reports::Estimate> MethodTuner::estimate() const {
  if (!confirmed_) return std::nullopt;
  const std::vector<reports::PromptPair> pairs = reports::values_of(confirmed_->prompts);
  return reports::speedup_sum(pairs);
}

void MethodTuner::keep(const runners::ChoiceKey& key) {
  if (found_.rounds.empty())
    throw base::Error(base::ExitCode::kInconclusive, "--max-time ended the race before a round",
                      "raise --max-time: the same command goes on from what is stored");
  runners::MethodChoice choice;
  choice.key = key;
  chosen_ = "ar";
  if (const auto e = estimate()) {
    choice.confirmed = candidates_[*found_.winner];
    choice.prompts = fresh_;
    choice.speedup = e->value;
    if (e->interval) choice.lo = e->interval->lo, choice.hi = e->interval->hi;
    if (choice.lo > 1) chosen_ = choice.confirmed;
  }
  choice.method = chosen_;
  choice.files = runners::choice_files(request_of({}, "all"), chosen_);
  choice.chosen = runners::utc_now();
  file_ = runners::method_choices_path();
  if (file_.empty())
    spdlog::warn("not kept for `--methods auto`: set EVALRUN_HOME, or HOME");
  else
    runners::store_choice(file_, choice);
}

std::string MethodTuner::run_line(const std::string& method) const {
  std::vector<std::string> words = {"evalrun", "run"};
  if (!options_.model.model.empty()) words.insert(words.end(), {"-m", options_.model.model});
  const std::vector<std::string> model = options_.model.words();
  words.insert(words.end(), model.begin(), model.end());
  if (!options_.data_root.empty()) words.insert(words.end(), {"--data-root", options_.data_root});
  words.insert(words.end(),
               {"--tasks", fmt::format("{}", fmt::join(options_.tasks, ",")), "--methods", method});
  return shell_line(words);
}

nlohmann::ordered_json MethodTuner::json() const {
  nlohmann::ordered_json methods = nlohmann::json::array(), rounds = nlohmann::json::array();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const runners::MethodRace::Standing& s = found_.standings[i];
    nlohmann::ordered_json row{{"method", candidates_[i]}, {"prompts", s.prompts}};
    row["speedup"] = std::exp(s.log_speedup);
    row["dropped_in"] = s.dropped_in > 0 ? nlohmann::ordered_json(s.dropped_in) : nullptr;
    methods.push_back(row);
  }
  for (const runners::MethodRace::Round& r : found_.rounds)
    rounds.push_back({{"prompts", r.prompts},
                      {"leader", name_of(r.leader)},
                      {"left", r.raced.size() - r.dropped.size()},
                      {"plain_left", r.plain_left}});
  nlohmann::ordered_json document{{"method", chosen_}, {"confirmed", nullptr}};
  if (const auto e = estimate()) {
    nlohmann::ordered_json confirmed{
        {"method", candidates_[*found_.winner]}, {"prompts", fresh_}, {"speedup", e->value}};
    confirmed["speedup_lo"] = e->interval ? nlohmann::ordered_json(e->interval->lo) : nullptr;
    confirmed["speedup_hi"] = e->interval ? nlohmann::ordered_json(e->interval->hi) : nullptr;
    document["confirmed"] = confirmed;
  }
  document["methods"] = methods;
  document["rounds"] = rounds;
  document["left_out"] = left_out_;
  document["error"] = options_.error;
  document["finished"] = found_.finished;
  document["command"] = run_line("auto");
  return document;
}

void MethodTuner::print_rounds() const {
  std::vector<std::vector<std::string>> cells;
  for (const runners::MethodRace::Round& r : found_.rounds) {
    std::vector<std::string> dropped;
    for (const size_t i : r.dropped) dropped.push_back(candidates_[i]);
    const bool was_left = cells.empty() || found_.rounds[cells.size() - 1].plain_left;
    if (was_left && !r.plain_left) dropped.emplace_back("ar");
    cells.push_back({std::to_string(cells.size() + 1), std::to_string(r.prompts), name_of(r.leader),
                     fmt::format("{:.2f}", std::exp(r.leader_log_speedup)),
                     dropped.empty() ? "-" : fmt::format("{}", fmt::join(dropped, " "))});
  }
  print_line(aligned_table({"round", "prompts", "leader", "speedup", "dropped"}, cells));
}

void MethodTuner::print_methods() const {
  std::vector<std::vector<std::string>> cells;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const runners::MethodRace::Standing& s = found_.standings[i];
    cells.push_back({candidates_[i], fmt::format("{:.2f}", std::exp(s.log_speedup)),
                     std::to_string(s.prompts),
                     s.dropped_in > 0 ? fmt::format("round {}", s.dropped_in) : "-"});
  }
  print_line("\n" + aligned_table({"method", "speedup", "prompts", "dropped"}, cells));
  print_line(
      fmt::format("\nGeometric means over the prompts of the race. The best method is dropped with "
                  "a chance of {:.2g} at most.{}",
                  options_.error, found_.finished ? "" : " --max-time ended the race."));
}

void MethodTuner::report() const {
  if (global_.json) return print_json_document(json());
  print_rounds();
  print_methods();
  const auto e = estimate();
  if (e) {
    const std::string interval =
        e->interval ? fmt::format(" [{:.2f}, {:.2f}]", e->interval->lo, e->interval->hi) : "";
    print_line(fmt::format("\n{} on {} prompts that took no part: {:.2f}{} in decoding",
                           candidates_[*found_.winner], fresh_, e->value, interval));
  }
  if (chosen_ == "ar")
    print_line(fmt::format("\nNothing pays here: plain decoding is chosen, because {}.\n\n{}",
                           e ? "the winner is not shown to be faster" : "no method leads it",
                           run_line("auto")));
  else
    print_line(fmt::format("\nUse {}\n\n{}\n{}", chosen_, run_line(chosen_), run_line("auto")));
}

void add_tune_method_options(CLI::App& command, MethodArguments& o) {
  o.model.add(command);
  command.add_option("--methods", o.methods,
                     "Candidates (default: what needs no training, and trained drafters of this "
                     "model)");
  command.add_option("--tasks", o.tasks, "Tasks, e.g. gsm8k or your own prompts: jsonl:FILE")
      ->default_str("samples");
  add_data_root(command, o.data_root);
  command.add_option("--limit", o.limit, "Prompts per task, evenly over categories; half confirm")
      ->check(CLI::Range(4, 10000))
      ->capture_default_str();
  command.add_option("-n,--max-new", o.max_new, "Tokens per answer")
      ->check(CLI::Range(4, 4096))
      ->capture_default_str();
  command.add_option("--max-time", o.seconds, "Time for the race: 90s, 10m, 2h")
      ->transform(as_seconds())
      ->check(CLI::PositiveNumber)
      ->default_str("1800s");
  command.add_option("--error", o.error, "Chance to drop the best candidate")
      ->check(CLI::Range(0.0001, 0.5))
      ->capture_default_str();
}

// Lists with commas, as of `run`.
void split_lists(MethodArguments& o) {
  std::vector<std::string> methods, tasks;
  for (const std::string& list : o.methods)
    for (std::string& method : methods::split_method_list(list))
      methods.push_back(std::move(method));
  for (const std::string& list : o.tasks)
    for (const std::string& task : datasets::split_dataset_list(list)) tasks.push_back(task);
  std::erase(methods, "ar");  // takes part in any case
  if (std::find(methods.begin(), methods.end(), runners::kAutoMethod) != methods.end())
    throw base::usage_error("--methods: auto is what this command chooses", "name methods");
  if (methods.empty() && !o.methods.empty())
    throw base::usage_error("--methods: nothing to choose from but plain decoding",
                            "evalrun list methods says what there is");
  o.methods = std::move(methods);
  o.tasks = std::move(tasks);
}

}  // namespace

void add_tune_method(CLI::App& tune, Context& context) {
  auto* command = tune.add_subcommand("method", "Which method to use on your own prompts");
  auto options = std::make_shared<MethodArguments>();
  add_tune_method_options(*command, *options);
  command->footer(
      "Candidates race on half of the prompts, beside plain decoding. After each round those "
      "leave\n"
      "that are shown to be slower than the leader. The winner is measured once more on the other\n"
      "half. It is chosen when it is shown to be faster there, else plain decoding is. The choice "
      "is\n"
      "kept: `evalrun run --methods auto` takes it. The same command goes on where it was\n"
      "interrupted.\n\n"
      "Examples:\n"
      "  evalrun tune method --tasks jsonl:prompts.jsonl\n"
      "  evalrun tune method -m model.gguf --tasks gsm8k --methods pld:adaptive=true,medusa");
  command->callback([options, &context] {
    split_lists(*options);
    MethodTuner(*options, context.global).run();
  });
}

}  // namespace evalrun::cli
