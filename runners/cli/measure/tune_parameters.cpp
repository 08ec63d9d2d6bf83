#include "runners/cli/measure/tune_parameters.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "engine/base/units.h"
#include "methods/registration.h"
#include "reports/data/pairing.h"
#include "runners/cli/command_line.h"
#include "runners/cli/instruments.h"
#include "runners/cli/measure/measured_part.h"
#include "runners/cli/output.h"
#include "runners/cli/units.h"
#include "runners/train/parameter_search.h"

namespace evalrun::cli {
namespace {

struct ParameterArguments {
  ModelOptions model;
  std::string method;
  std::vector<std::string> space;
  std::string task = "samples", data_root;
  int limit = 32, max_new = 64;
  double seconds = 600;
};

// Every measurement is a run of its own in the database, with a part of the prompts. Its key
// follows from what is measured, so that the same command finds what an earlier one has stored and
// goes on from there.
class ParameterTuner {
 public:
  ParameterTuner(const ParameterArguments& options, const GlobalOptions& global)
      : options_(options),
        global_(global),
        space_(options.method, options.space),
        model_(options.model.load()),
        draft_(options.model.load_draft()),
        instruments_(global),
        begin_ns_(instruments_.clock().now_ns()) {
    const runners::RunPlan all = runners::make_plan(request_of({}, "all"));
    half_ = static_cast<int>(all.prompts.size()) / 2;
    fresh_ = static_cast<int>(all.prompts.size()) - half_;
    if (half_ < 2)
      throw base::usage_error(
          fmt::format("{} prompts: two halves of two at least are needed", all.prompts.size()),
          "raise --limit, or give another --task");
  }

  void run() {
    results::ResultStore store(global_.db);
    store_ = &store;
    runners::ParameterSearch search;
    search.first_prompts = std::min(4, half_);
    search.prompts = half_;
    search.measure = [this](const std::vector<std::string>& specs, int begin, int end) {
      std::vector<runners::RaceTime> times;
      for (const Judged& judged : measure(specs, begin, end)) {
        const reports::Counters &own = judged.pairing.method, &plain = judged.pairing.base;
        times.push_back({own.n_decode, own.decode_ns, plain.n_decode, plain.decode_ns});
      }
      return times;
    };
    search.stop = [this] { return elapsed() > options_.seconds; };
    search.progress = [this](const runners::ParameterSearch::Step& step) {
      spdlog::info("{} of at most {}: {} leads {} values of {}, {:.2f}x on {} prompts",
                   base::format_duration(elapsed()), base::format_duration(options_.seconds),
                   step.method, step.raced, space_.axes()[step.axis].name, step.speedup,
                   step.prompts);
    };
    const runners::ParameterSearch::Result found = search.run(space_);
    if (found.tried == 0)
      throw base::usage_error(
          fmt::format("--space: nothing to choose from: {} is all there is", found.method),
          "give a parameter several values, or raise --max-time");
    std::vector<std::string> specs = {found.method};
    if (space_.method() != found.method) specs.push_back(space_.method());
    report(found, measure(specs, half_, half_ + fresh_));
  }

 private:
  struct Judged {
    std::string spec;
    reports::Pairing pairing;
  };

  double elapsed() { return 1e-9 * static_cast<double>(instruments_.clock().now_ns() - begin_ns_); }

  runners::PlanRequest request_of(const std::vector<std::string>& specs,
                                  const std::string& part) const {
    runners::PlanRequest request;
    runners::Suite& suite = request.suite;
    suite.methods = {"ar"};
    suite.methods.insert(suite.methods.end(), specs.begin(), specs.end());
    suite.tasks = {{.task = options_.task}};
    suite.limit = options_.limit;
    suite.max_new = options_.max_new;
    request.session = options_.model.session_options(0);
    request.data_root = datasets::resolve_data_root(options_.data_root);
    request.label = "tune " + methods::parse_method(options_.method).info->name;
    request.nonce = "prompts " + part;
    request.target = model_;
    request.draft = draft_;
    complete_search(request, "tune parameters");
    return request;
  }

  // Plain decoding and the methods on some prompts, paired, in order of `specs`.
  std::vector<Judged> measure(const std::vector<std::string>& specs, int begin, int end) {
    const std::vector<reports::Pairing> pairings = measure_part(
        request_of(specs, fmt::format("{} to {}", begin, end)), begin, end, *store_, instruments_);
    EVALRUN_CHECK(pairings.size() == specs.size(), "{} arms of {} methods", pairings.size(),
                  specs.size());
    std::vector<Judged> judged;
    for (size_t i = 0; i < specs.size(); ++i) judged.push_back({specs[i], pairings[i]});
    return judged;
  }

  void report(const runners::ParameterSearch::Result& found, const std::vector<Judged>& fresh) {
    nlohmann::ordered_json settings = nlohmann::json::array();
    std::vector<std::vector<std::string>> cells;
    for (const Judged& one : fresh) {
      const std::vector<reports::PromptPair> pairs = reports::values_of(one.pairing.prompts);
      const auto estimate = reports::speedup_sum(pairs);
      const double tau =
          one.pairing.method.steps > 0 ? one.pairing.method.emitted / one.pairing.method.steps : 0;
      nlohmann::ordered_json row{{"method", one.spec}, {"tau", tau}};
      std::string speedup = "-";
      if (estimate) {
        row["speedup"] = estimate->value;
        speedup = fmt::format("{:.2f}", estimate->value);
        if (estimate->interval) {
          row["speedup_lo"] = estimate->interval->lo;
          row["speedup_hi"] = estimate->interval->hi;
          speedup +=
              fmt::format(" [{:.2f}, {:.2f}]", estimate->interval->lo, estimate->interval->hi);
        }
      }
      settings.push_back(row);
      cells.push_back({one.spec, speedup, fmt::format("{:.2f}", tau)});
    }
    if (global_.json)
      return print_json_document({{"method", found.method},
                                  {"settings", settings},
                                  {"prompts_judged_on", fresh_},
                                  {"prompts_chosen_on", found.prompts},
                                  {"speedup_chosen_on", found.speedup},
                                  {"tried", found.tried},
                                  {"impossible", found.impossible},
                                  {"points", space_.size()},
                                  {"finished", found.finished}});
    print_line(
        fmt::format("tried {} of {} settings{}{}", found.tried, space_.size(),
                    found.impossible > 0
                        ? fmt::format(", {} that do not go together left out", found.impossible)
                        : "",
                    found.finished ? "" : "; --max-time ended the search"));
    print_line(fmt::format(
        "the best one on the {} prompts that chose it: {:.2f}, which is too high, because the "
        "luckiest of many was taken\n",
        found.prompts, found.speedup));
    print_line(aligned_table(
        {fmt::format("on {} prompts that took no part", fresh_), "speedup [95 %]", "tau"}, cells));
    print_line(
        fmt::format("\nAll tokens are those of plain decoding.\n\n{}\n\nwith more prompts: "
                    "evalrun run --tasks {} --methods {}",
                    found.method, options_.task, found.method));
  }

  const ParameterArguments& options_;
  const GlobalOptions& global_;
  const runners::SearchSpace space_;
  const std::shared_ptr<const engine::Model> model_, draft_;
  Instruments instruments_;
  const int64_t begin_ns_;
  results::ResultStore* store_ = nullptr;
  int half_ = 0, fresh_ = 0;  // prompts that choose, and that judge
};

}  // namespace

void add_tune_parameters(CLI::App& tune, Context& context) {
  auto* command =
      tune.add_subcommand("parameters", "Values of a method's parameters, by search not by grid");
  auto options = std::make_shared<ParameterArguments>();
  options->model.add(*command);
  command
      ->add_option("--method", options->method,
                   "The method, with the parameters that are not searched")
      ->required();
  command
      ->add_option("--space", options->space,
                   "Parameters and their values: length=3..8,branches=4..20..4,match=first|recent")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--task", options->task, "Task the prompts come from")->capture_default_str();
  add_data_root(*command, options->data_root);
  command
      ->add_option("--limit", options->limit, "Prompts, evenly over categories; half of them judge")
      ->check(CLI::Range(4, 10000))
      ->capture_default_str();
  command->add_option("-n,--max-new", options->max_new, "Tokens per answer")
      ->check(CLI::Range(4, 4096))
      ->capture_default_str();
  command->add_option("--max-time", options->seconds, "Time for the search: 90s, 10m, 2h")
      ->transform(as_seconds())
      ->check(CLI::PositiveNumber)
      ->default_str("600s");
  command->footer(
      "One parameter at a time, its values race against plain decoding on the same prompts: the\n"
      "slower half leaves, the others meet twice as many prompts. What wins is measured again on\n"
      "prompts that took no part, beside the method as given. All of it is stored: the same\n"
      "command goes on where it was interrupted.\n\n"
      "Examples:\n"
      "  evalrun tune parameters --method self_draft --space "
      "length=3..8,branches=2..10..2,gram=2..5\n"
      "  evalrun tune parameters --method pld:adaptive=true --space match=first|recent,k=2..12..2");
  command->callback([options, &context] { ParameterTuner(*options, context.global).run(); });
}

}  // namespace evalrun::cli
