// evalrun run: plan, measure, store, print the table.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>

#include "datasets/spec.h"
#include "engine/base/text.h"
#include "engine/devices.h"
#include "methods/registration.h"
#include "reports/figures/report.h"
#include "reports/gate/gate_output.h"
#include "reports/table/grouping.h"
#include "results/queries.h"
#include "runners/cli/cli.h"
#include "runners/cli/command_line.h"
#include "runners/cli/given_options.h"
#include "runners/cli/instruments.h"
#include "runners/cli/measure/loaded_models.h"
#include "runners/cli/measure/run_plan.h"
#include "runners/cli/measure/run_settings.h"
#include "runners/cli/measure/shared_end.h"
#include "runners/cli/output.h"
#include "runners/cli/row_cost_file.h"
#include "runners/cli/stored_row_times.h"
#include "runners/cli/units.h"
#include "runners/cluster/device_processes.h"
#include "runners/cluster/shard_reporter.h"
#include "runners/cluster/shared_run.h"
#include "runners/cluster/socket_messages.h"
#include "runners/machine/gpu_state.h"
#include "runners/machine/processor_energy.h"
#include "runners/machine/row_cost_cache.h"
#include "runners/measure/turns.h"
#include "runners/plan/method_lists.h"
#include "runners/plan/planted_faults.h"
#include "runners/plan/shards.h"

namespace evalrun::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  evalrun run quick
  evalrun run ci -m model.gguf --methods ar,pld:k=10 --label before
  evalrun run --tasks gsm8k,mt_bench --limit 40 -n 128 --data-root DATA --plan
  evalrun run quick --endpoint plain=http://127.0.0.1:8080,api=llama \
    --endpoint spec=http://127.0.0.1:8081,api=llama

Several values of -m, --device, --dtype, --isa, --kv-dtype, -t, -n or --temperature are as many runs, each
with a label of its own, and one table: evalrun run quick --dtype q4,bf16 -t 1,2
Equal settings resume a run that was interrupted, and never measure twice; --no-resume starts afresh.)";

// What the command line says on top of the suite; unset = as the suite says.
struct RunArguments {
  ModelLists model;
  std::string suite;
  std::vector<std::string> methods, tasks, evaluators, endpoints;
  std::optional<std::string> baseline;
  std::vector<int> max_new;
  std::vector<double> temperature;
  std::vector<int> batch;
  std::optional<std::string> batch_mode;
  std::optional<int> max_turns, repeats, samples, top_k, wave;
  std::optional<double> limit, top_p;
  std::optional<std::string> sampler;
  std::optional<uint64_t> seed;
  std::optional<std::string> warmup, order;
  std::optional<bool> aa, replay, ignore_eos, kv_cache;
  std::string data_root, label, nonce, shard, row_cost, format = "text";
  double max_time_s = 0;
  std::string copy_to, peers;
  std::vector<std::string> devices;
  bool mpi = false;
  bool shared() const { return mpi || !peers.empty(); }
  double copy_every_s = 300;
  int jobs = 0;
  evaluators::ScoringContext scoring;
  bool resume = true, plan = false, skip_long = false;
  bool energy = false;
  bool lock_step = false;
  std::string fault;  // of --lock-step=FAULT
};

void add_suite_options(CLI::App& run, RunArguments& o) {
  const char* group = "What to measure (on top of the suite)";
  const auto option = [&](const char* name, auto& value, const std::string& text) {
    return run.add_option(name, value, text)->group(group);
  };
  // Not add_flag: CLI11 takes an optional<bool> for a counter and sets it to 0, given or not.
  const auto flag = [&](const char* name, std::optional<bool>& value, const char* text) {
    run.add_flag_function(
           name, [&value](int64_t count) { value = count > 0; }, text)
        ->group(group);
  };
  option(
      "--methods", o.methods,
      fmt::format(
          "Methods, e.g. ar,pld:k=10 (AR is always measured); auto = the choice of `evalrun tune "
          "method`; or lists: {}",
          runners::describe_method_lists()));
  option(
      "--endpoint", o.endpoints,
      "A server to measure over HTTP, NAME=URL[,api=...][,model=...][,key-env=...][,cache=...]; "
      "repeat it for more of them. Methods are measured beside servers where --methods or a suite "
      "with endpoints names them")
      ->allow_extra_args(false);
  option("--baseline", o.baseline,
         "What all arms are compared with beside servers: an endpoint's NAME or a method (default: "
         "the first endpoint)");
  option("--tasks", o.tasks, "Tasks, e.g. gsm8k,mt_bench or jsonl:FILE (evalrun list tasks)");
  option("--evaluators", o.evaluators, "auto (those of the task), none, or names, auto among them")
      ->delimiter(',');
  option("-n,--max-new", o.max_new, "Tokens per answer (default: the task's)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber);
  option("--limit", o.limit, "Prompts per task: a count, or a share below 1")
      ->check(CLI::NonNegativeNumber);
  option("--max-turns", o.max_turns, "Turns per conversation at most")->check(CLI::Range(0, 1000));
  option("-r,--repeats", o.repeats, "Times every prompt is measured, in rounds over the whole set")
      ->check(CLI::Range(1, 100000));
  option("--samples", o.samples, "Seeded generations per prompt (with --temperature)")
      ->check(CLI::Range(1, 100000));
  option("--batch", o.batch, "Prompts decoded at once: sizes, e.g. 1,2,4; every method at each")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, runners::kLargestBatch));
  option("--batch-mode", o.batch_mode,
         "static: slots start together; continuous: a free slot takes the next prompt")
      ->check(CLI::IsMember({"static", "continuous"}));
  option("--wave", o.wave, "Prompts that all arms decode in turn (default: by the largest batch)")
      ->check(CLI::Range(0, 1 << 20));
  option("--temperature", o.temperature, "0 = greedy")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 100.0));
  option("--top-k", o.top_k, "Sample from the k likeliest tokens, 0 = off")
      ->check(CLI::NonNegativeNumber);
  option("--top-p", o.top_p, "Sample from the likeliest tokens that hold this share, 1 = off")
      ->check(CLI::Range(0.0, 1.0));
  option("--sampler", o.sampler,
         "inverse, or gumbel: plain decoding and drafters draw by the same noise, so that every "
         "method gives the same tokens")
      ->check(CLI::IsMember({"inverse", "gumbel"}));
  option("--seed", o.seed, "Seed of sampling and of the order of arms");
  option("-w,--warmup", o.warmup, "auto, or generations per arm");
  option("--order", o.order, "interleaved, random or sequential");
  flag("--aa,!--no-aa", o.aa, "A second AR arm: the noise floor");
  flag("--replay,!--no-replay", o.replay,
       "Lead every arm along plain decoding's text; greedy only");
  flag("--ignore-eos,!--no-ignore-eos", o.ignore_eos, "Always decode --max-new tokens");
  flag("--kv-cache,!--no-kv-cache", o.kv_cache, "Keep keys and values between steps");
}

void add_run_options(CLI::App& run, RunArguments& o) {
  run.add_option("suite", o.suite, "Built-in suite (quick, ci) or JSON file")
      ->option_text("[SUITE]");
  o.model.add(run);
  add_suite_options(run, o);
  add_data_root(run, o.data_root);
  run.add_option("--label", o.label, "Name of the run, for report and compare");
  run.add_flag("--resume,!--no-resume", o.resume,
               "Continue an earlier run of the same settings (default)");
  run.add_option("--nonce", o.nonce, "Keep separate from other runs of the same settings");
  run.add_option("--shard", o.shard,
                 "I/N, from 1/N to N/N: measure this part of the prompts alone, to be merged with "
                 "the others (evalrun merge)");
  run.add_option(
         "--row-cost", o.row_cost,
         "T(n) for methods that go by it, of `evalrun cost --json`, instead of measuring it: "
         "the same drafts on every machine")
      ->check(CLI::ExistingFile);
  run.add_option("--max-time", o.max_time_s,
                 "Stop after this long, once the current prompt is finished: 90s, 10m, 2h")
      ->transform(as_seconds());
  run.add_option("--devices", o.devices,
                 "A process for each of these devices, which share the prompts: cuda:0,cuda:1; or "
                 "cores of this machine: cpu,cpu or cpu:0-3,cpu:4-7")
      ->delimiter(',')
      ->allow_extra_args(false);
  run.add_flag("--mpi", o.mpi,
               "Share the prompts with the other processes that mpirun has started");
  // Hidden: --devices starts processes with it.
  run.add_option("--peers", o.peers, "RANK/SIZE:DESCRIPTORS")->group("");
  run.add_option("--copy-to", o.copy_to,
                 "Keep a copy of the result database in this file, on a shared disk: made between "
                 "generations and at the end; a run begins with it where it holds more than --db");
  run.add_option("--copy-every", o.copy_every_s, "How often, with --copy-to")
      ->transform(as_seconds())
      ->default_str("5m");
  run.add_option(
         "-j,--jobs", o.jobs,
         "Generated programs run at once when answers are judged, after the timed part (default: "
         "the cores this process may use)")
      ->check(CLI::Range(0, 1024));
  add_scoring_options(run, o.scoring);
  run.add_flag("--energy", o.energy, "End at once where the energy of what decodes cannot be read");
  run.add_flag("--skip-long", o.skip_long, "Leave out prompts longer than the context");
  run.add_flag("--plan,--dry-run", o.plan, "Show cells, time and detectable effect; store nothing");
  run.add_option("-o,--format", o.format, "Table as text, md, csv or json")
      ->check(CLI::IsMember({"text", "md", "csv", "json"}))
      ->capture_default_str();
  // Hidden: `check --against` starts this and says when to measure. A fault is planted for `check
  // --self-test` alone; its rows are stamped as such.
  run.add_option("--lock-step", o.fault, "Measure when told to on standard input")
      ->expected(0, 1)
      ->group("");
  run.footer(kExamples);
}

int parse_warmup(const std::string& text) {
  if (text == "auto") return -1;
  if (text.empty() || text.size() > 4 || text.find_first_not_of("0123456789") != std::string::npos)
    throw base::usage_error(fmt::format("--warmup: '{}' is neither auto nor a count", text));
  return std::stoi(text);
}

// Without batches a suite's mode and wave of batches mean nothing.
void apply_batches(const RunArguments& o, runners::Batches& batches) {
  if (o.batch == std::vector<int>{1}) batches = {};
  if (!o.batch.empty()) batches.sizes = o.batch;
  if (o.batch_mode) batches.mode = runners::parse_batch_mode(*o.batch_mode, "--batch-mode");
  batches.wave = o.wave.value_or(batches.wave);
}

// A suite that knows of no server lends its data sets and settings alone.
void apply_endpoints(const RunArguments& o, runners::Suite& suite) {
  suite.baseline = o.baseline.value_or(suite.baseline);
  if (o.endpoints.empty()) return;
  if (suite.endpoints.empty()) {
    suite.methods.clear();
    suite.optional_methods.clear();
  }
  suite.endpoints.clear();
  for (const std::string& endpoint : o.endpoints)
    suite.endpoints.push_back(runners::parse_endpoint(endpoint, "--endpoint"));
}

void apply(const RunArguments& o, const RunSetting& setting, runners::Suite& suite) {
  apply_endpoints(o, suite);
  if (!o.methods.empty()) {
    suite.methods.clear();
    suite.optional_methods.clear();
    for (const std::string& list : o.methods)
      for (std::string& method : methods::split_method_list(list))
        suite.methods.push_back(std::move(method));
  }
  if (!o.tasks.empty()) {
    suite.tasks.clear();
    for (const std::string& list : o.tasks)
      for (const std::string& task : datasets::split_dataset_list(list))
        suite.tasks.push_back({.task = task});
  }
  if (!o.evaluators.empty()) {
    const bool is_auto = o.evaluators == std::vector<std::string>{"auto"};
    suite.evaluate = o.evaluators != std::vector<std::string>{"none"};
    suite.evaluators = suite.evaluate && !is_auto ? o.evaluators : std::vector<std::string>{};
  }
  // A task's own length, share or template gives way to the command line as well.
  if (setting.max_new) {
    suite.max_new = *setting.max_new;
    for (runners::TaskSpec& task : suite.tasks) task.max_new = 0;
  }
  if (setting.model.chat_template)
    for (runners::TaskSpec& task : suite.tasks) task.chat_template.clear();
  if (o.limit) {
    suite.limit = *o.limit;
    for (runners::TaskSpec& task : suite.tasks) task.limit = 0;
  }
  suite.max_turns = o.max_turns.value_or(suite.max_turns);
  suite.repeats = o.repeats.value_or(suite.repeats);
  suite.samples = o.samples.value_or(suite.samples);
  apply_batches(o, suite.batches);
  suite.sampling.temperature = setting.temperature.value_or(suite.sampling.temperature);
  const std::vector<double>& all = o.temperature.empty() ? suite.temperatures : o.temperature;
  const bool some_draw = std::any_of(all.begin(), all.end(), [](double t) { return t > 0; });
  suite.temperatures.clear();  // this is the run of one of them
  suite.sampling.top_k = o.top_k.value_or(suite.sampling.top_k);
  suite.sampling.top_p = o.top_p.value_or(suite.sampling.top_p);
  if (o.sampler) suite.sampling.sampler = engine::parse_sampler(*o.sampler, "--sampler");
  // A greedy run beside sampled ones takes no sampler. Where all are greedy, complete_suite()
  // refuses it.
  if (some_draw && suite.sampling.greedy()) suite.sampling.sampler = engine::Sampler::kInverse;
  suite.seed = o.seed.value_or(suite.seed);
  if (o.warmup) suite.warmup = parse_warmup(*o.warmup);
  if (o.order) suite.order = runners::parse_order(*o.order, "--order");
  suite.aa = o.aa.value_or(suite.aa);
  suite.replay = o.replay.value_or(suite.replay);
  suite.ignore_eos = o.ignore_eos.value_or(suite.ignore_eos);
  suite.kv_cache = o.kv_cache.value_or(suite.kv_cache);
}

void warn_about(const runners::PlanRequest& request) {
  const runners::Suite& suite = request.suite;
  if (suite.samples > 1 && suite.sampling.greedy())
    spdlog::warn("--samples {} with temperature 0: every sample will be the same text",
                 suite.samples);
  const auto uses_draft = [](const std::string& method) {
    return method == runners::kAutoMethod || methods::parse_method(method).takes_draft_model();
  };
  if (request.draft != nullptr &&
      std::none_of(suite.methods.begin(), suite.methods.end(), uses_draft))
    spdlog::warn("--draft is given, but no method drafts with a second model");
}

// What is asked for, whatever the model.
runners::Suite make_suite(const RunArguments& o, const RunSetting& setting) {
  runners::Suite suite;
  if (!o.suite.empty()) suite = runners::load_suite(o.suite);
  apply(o, setting, suite);
  if (!o.model.model.empty()) suite.models.clear();
  if (o.model.model.size() > 1) suite.models = o.model.model;
  runners::complete_suite(suite, o.suite.empty() ? "command line" : o.suite);
  return suite;
}

// One of the runs of a command.
struct OneRun {
  runners::Suite suite;  // of at most one model
  RunSetting setting;
};

// All of them, model by model.
std::vector<OneRun> make_runs(const RunArguments& o) {
  std::vector<std::vector<OneRun>> by_model;
  std::vector<double> temperatures = o.temperature;
  if (temperatures.empty() && !o.suite.empty())
    temperatures = runners::load_suite(o.suite).temperatures;
  for (const RunSetting& setting : every_setting(o.model, o.max_new, temperatures)) {
    const std::vector<runners::Suite> suites = runners::one_per_model(make_suite(o, setting));
    by_model.resize(suites.size());
    for (size_t m = 0; m < suites.size(); ++m) by_model[m].push_back({suites[m], setting});
  }
  std::vector<OneRun> runs;
  for (const std::vector<OneRun>& of_model : by_model)
    runs.insert(runs.end(), of_model.begin(), of_model.end());
  return runs;
}

std::string make_nonce(const RunArguments& o) {
  if (o.resume || !o.nonce.empty()) return o.nonce;
  return fmt::format("{:x}.{:x}", std::chrono::system_clock::now().time_since_epoch().count(),
                     ::getpid());
}

// `one_of_several`: the label says which.
runners::PlanRequest make_request(const RunArguments& o, const OneRun& run,
                                  const std::string& nonce, bool one_of_several,
                                  LoadedModels& models) {
  runners::PlanRequest request;
  request.suite = run.suite;
  ModelOptions model = run.setting.model;
  if (!run.suite.models.empty()) model.model = model_path(run.suite.models.front());
  request.session = model.session_options(0);  // capacity follows from the prompts
  request.data_root = datasets::resolve_data_root(o.data_root);
  request.skip_long = o.skip_long;
  request.label = o.label;
  request.nonce = nonce;
  if (!o.row_cost.empty()) request.row_cost = row_cost_in_file(o.row_cost);
  if (!o.shard.empty()) request.shard = runners::parse_shard(o.shard);
  request.target = models.target(model);
  request.draft = models.draft(model);
  if (one_of_several) {
    std::string which = run.suite.models.empty() ? "" : request.target->config().name;
    if (!which.empty() && !run.setting.name.empty()) which += ",";
    request.label =
        fmt::format("{}@{}{}", o.label.empty() ? run.suite.name : o.label, which, run.setting.name);
  }
  request.command = resume_line(process_arguments(), request.nonce);
  warn_about(request);
  return request;
}

int count_stored(const std::string& db, const std::string& run_key) {
  std::error_code ignored;
  if (!std::filesystem::exists(db, ignored)) return 0;
  const results::ResultStore store(db, results::ResultStore::Mode::kReadOnly);
  return static_cast<int>(results::count_of_key(store, run_key));
}

// What an earlier run of the same arms knows, if this database holds one.
std::optional<reports::RunHistory> history_of(const std::string& db, const runners::RunPlan& plan) {
  if (!plan.suite.batches.one()) return std::nullopt;  // times of generations overlap there
  std::error_code ignored;
  if (!std::filesystem::exists(db, ignored)) return std::nullopt;
  std::vector<std::string> keys;
  for (const runners::PlannedArm& arm : plan.arms) keys.push_back(arm.record.key);
  const auto& environment = plan.run.environment;
  auto machine = environment.find("gpu");
  if (machine == environment.end()) machine = environment.find("cpu");
  const results::ResultStore store(db, results::ResultStore::Mode::kReadOnly);
  return reports::find_history(store, keys, machine == environment.end() ? "" : machine->second);
}

// Calls f with what is planned for one model.
template <typename F>
void with_plan(const Context& context, const runners::PlanRequest& request, const F& f) {
  const runners::RunPlan plan = runners::make_plan(request);
  const runners::Conversation conversation(*request.target);
  const datasets::Prompt& first = plan.prompts.front().prompt;
  base::SteadyClock clock;
  engine::SessionOptions options = runners::planned_session(request, plan);
  options.n_sequences = 1;  // one is calibrated
  // As before a run, but not kept: a plan may be made while the machine is busy.
  if (!plan.row_cost->given)
    *plan.row_cost = runners::obtain_row_cost({.model = request.target,
                                               .session = options,
                                               .cache_file = runners::row_cost_cache_path(),
                                               .seconds = runners::kRowCostSeconds,
                                               .keep = false,
                                               .batches = plan.suite.batches.sizes});
  const std::vector<runners::StepPrice> prices = runners::step_prices(plan);
  const auto session = engine::Session::create(request.target, options);
  const auto ids = conversation.encode(first, conversation.render(first, {}));
  f(PlanReport{plan, runners::calibrate(*session, ids, clock), prices,
               count_stored(context.global.db, plan.run.key), history_of(context.global.db, plan)});
}

// "model small.gguf, dtype=q4": which of several runs it is.
std::string which(const OneRun& run) {
  std::string text;
  if (!run.suite.models.empty()) text = "model " + run.suite.models.front();
  if (!run.setting.name.empty()) text += (text.empty() ? "" : ", ") + run.setting.name;
  return text;
}

// As JSON, a document; of several runs, a list of them.
void show_plans(const Context& context, const RunArguments& o, const std::vector<OneRun>& runs,
                const std::string& nonce) {
  const bool json = context.global.json || o.format == "json";
  nlohmann::ordered_json documents = nlohmann::json::array();
  LoadedModels models;
  for (const OneRun& run : runs) {
    const runners::PlanRequest request = make_request(o, run, nonce, runs.size() > 1, models);
    with_plan(context, request, [&](const PlanReport& report) {
      if (json) return documents.push_back(plan_json(report));
      if (runs.size() > 1)
        print_line(fmt::format("{}{}, run '{}'", &run == runs.data() ? "" : "\n", which(run),
                               request.label));
      print_plan(report);
    });
  }
  if (json) print_json_document(runs.size() > 1 ? documents : documents.front());
}

int exit_code_of(const runners::RunOutcome& outcome, const std::string& resume_command) {
  const int stored = outcome.stored_before + outcome.measured;
  if (outcome.failed > 0)
    spdlog::warn("{} generations failed; their rows say why (evalrun show)", outcome.failed);
  for (const std::string& problem : outcome.scoring_problems)
    spdlog::warn("not judged: {}", problem);
  for (const std::string& arm : outcome.few_common_tokens)
    spdlog::warn("draft model and target have few tokens in common: {}", arm);
  if (outcome.steal_share > 0.02)
    spdlog::warn("other guests of this machine took {:.1f} % of the processor time",
                 100 * outcome.steal_share);
  switch (outcome.status) {
    case runners::RunStatus::kInterrupted:
      spdlog::warn(
          "interrupted: {} of {} generations stored{}; resume with\n  {}", stored, outcome.planned,
          outcome.unscored > 0 ? fmt::format(", {} answers not judged yet", outcome.unscored) : "",
          resume_command);
      return static_cast<int>(base::ExitCode::kInterrupted);
    case runners::RunStatus::kOutOfTime:
      spdlog::warn("--max-time reached: {} of {} generations stored; go on with\n  {}", stored,
                   outcome.planned, resume_command);
      return static_cast<int>(base::ExitCode::kInconclusive);
    case runners::RunStatus::kComplete:
      break;
  }
  return static_cast<int>(outcome.failed > 0 ? base::ExitCode::kCorrectness : base::ExitCode::kOk);
}

// The table of one run; of several, the runs side by side.
std::string table(const results::ResultStore& store, const std::vector<int64_t>& runs,
                  const std::string& name, bool no_color) {
  const reports::Format format = reports::format_named(name).value();  // checked by the parser
  const reports::Layout layout{.width = report_width(), .colour = colour_wanted(no_color)};
  if (runs.size() > 1) {
    std::vector<reports::Report> reports;
    for (const int64_t run : runs) reports.push_back(reports::build_report(store, run));
    return reports::rendered(reports::group_by_run(reports), format, layout);
  }
  const reports::ReportOptions options{.row_times = stored_row_times};
  return reports::rendered(reports::build_report(store, runs.front(), options), format, layout);
}

// What cannot work for one of several runs must fail now, not after the hours of those before.
void check_plans(const RunArguments& o, const std::vector<OneRun>& runs, const std::string& nonce,
                 LoadedModels& models) {
  for (const OneRun& run : runs)
    if (!run.suite.models.empty()) model_path(run.suite.models.front());
  for (const OneRun& run : runs) try {
      runners::make_plan(make_request(o, run, nonce, true, models));
    } catch (const base::Error& e) {
      throw base::Error(e.code(), fmt::format("{}: {}", which(run), e.message()), e.hint());
    }
}

// Energy is stored where it can be read; who asks for it must not learn after hours that it was
// not.
void require_energy(const std::string& device) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw base::Error(base::ExitCode::kEnvironment, fmt::format("--energy: {}", what), remedy);
  };
  if (engine::is_gpu(device)) {
    if (const auto sample = runners::sample_gpu(device); !sample || !sample->energy_mj)
      refuse(fmt::format("the driver does not tell the energy of {}", device),
             "cards since Volta have the counter: `evalrun doctor` says whether NVML is found");
  } else if (const runners::EnergyReading energy = runners::read_energy(); energy.domains.empty()) {
    refuse(energy.refusal, energy.remedy);
  }
}

// Methods that promise plain decoding's tokens and gave others: whatever the table says of their
// speed, their output is wrong.
bool tokens_as_promised(const results::ResultStore& store, int64_t run_id) {
  const reports::RunData run = reports::load_run(store, run_id);
  bool kept = true;
  for (const reports::GateCheck& check :
       reports::output_checks(store, run, reports::Faults::kLeaveOut)) {
    if (check.metric != "lossless" || check.outcome != reports::Outcome::kCorrectness) continue;
    spdlog::error("{}: {}", check.method, check.reason);
    kept = false;
  }
  return kept;
}

void check_lock_step(const RunArguments& o, const std::vector<OneRun>& all) {
  if (all.size() > 1 || o.plan)
    throw base::usage_error("--lock-step measures one run: see `evalrun check --against`");
  if (!all.front().suite.endpoints.empty())
    throw base::usage_error(
        "--lock-step with endpoints: turns change within an answer, where no server can be stopped",
        "measure without --lock-step, or check against a stored baseline: evalrun check");
  if (const runners::Batches& batches = all.front().suite.batches; !batches.one())
    throw base::usage_error(
        fmt::format("--lock-step with batches of {}: turns are of batches of one",
                    batches.largest()),
        "measure with --batch 1, or check such a run against a stored baseline: evalrun check");
}

runners::ShardReporter::Settings copy_settings(const Context& context, const RunArguments& o,
                                               const std::function<bool()>& stop) {
  // Absolute first: weakly_canonical("r.db") stays relative while there is no such file.
  const auto place = [](const std::string& file) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(file), ignored);
  };
  if (place(o.copy_to) == place(context.global.db))
    throw base::usage_error(fmt::format("--copy-to: {} is the result database itself", o.copy_to),
                            "name another file, or leave --copy-to out");
  return {.database = context.global.db,
          .copy = o.copy_to,
          .shard = o.shard,
          .copy_every_s = o.copy_every_s,
          .stop = stop};
}

void check_shard(const RunArguments& o) {
  runners::parse_shard(o.shard);
  if (o.lock_step)
    throw base::usage_error("--shard with --lock-step, which measures a whole plan in turns",
                            "leave out one of them");
  if (!o.resume && o.nonce.empty())
    throw base::usage_error(
        "--shard with --no-resume: each process would draw a name of its own, and the shards could "
        "not be merged",
        "give all of them the same --nonce NAME");
}

// A run of several processes is one run, and nothing else decides what each measures.
void check_shared(const RunArguments& o, const std::vector<OneRun>& all) {
  const std::string option = o.mpi ? "--mpi" : "--devices";
  const auto refuse = [&](bool given, const char* other, const char* remedy) {
    if (given) throw base::usage_error(fmt::format("{} with {}", option, other), remedy);
  };
  refuse(o.mpi && !o.devices.empty(), "--devices",
         "start a process for each device by mpirun, or leave out --mpi");
  refuse(!o.shard.empty(), "--shard", "leave out one of them: either divides the prompts");
  refuse(o.lock_step, "--lock-step", "leave out one of them");
  refuse(!o.copy_to.empty(), "--copy-to", "each process has a database of its own beside --db");
  refuse(all.size() > 1, "several runs", "give each option one value, in several commands");
  refuse(o.mpi && !o.resume && o.nonce.empty(), "--no-resume",
         "each process would draw a name of its own: give all of them --nonce NAME");
  refuse(o.peers.empty() && !o.devices.empty() && !o.model.device.empty(), "--device",
         "leave out one of them");
}

void start_devices(Context& context, const RunArguments& o, const std::string& nonce) {
  std::vector<std::string> words = process_arguments();
  std::erase(words, "--no-resume");
  if (!nonce.empty() && o.nonce.empty()) words.insert(words.end(), {"--nonce", nonce});
  context.exit_code = runners::run_device_processes(
      runners::parse_device_slots(o.devices, runners::allowed_cores()), words);
}

// As one of several processes (runners/cluster/shared_run.h). The first of them tells how it ended.
void run_as_part(Context& context, const RunArguments& o, const OneRun& one,
                 const std::string& nonce) {
  const std::unique_ptr<runners::Messages> messages =
      o.mpi ? runners::open_mpi() : runners::open_sockets(runners::parse_socket_peers(o.peers));
  const bool first = messages->rank() == 0;
  if (!first) spdlog::set_level(spdlog::level::warn);
  LoadedModels models;
  Instruments instruments(context.global);
  runners::PlanRequest request = make_request(o, one, nonce, false, models);
  if (!o.peers.empty())  // as it was before --devices made several of it
    request.command =
        resume_line(runners::without_option(runners::without_option(process_arguments(), "--peers"),
                                            "--device"),
                    nonce);
  runners::ProgressSink silent;
  runners::RunnerOptions& options = instruments.options();
  options.scoring = o.scoring;
  options.score_workers = o.jobs;
  options.max_time_s = o.max_time_s;
  if (first)
    warn_if_unsafe(o.scoring);
  else
    options.progress = &silent;
  const runners::SharedOutcome outcome =
      run_shared(*messages, request, context.global.db, instruments.clock(), options,
                 o.mpi ? "--mpi" : "--devices");
  if (!first) return;
  context.exit_code = tell_shared(outcome, context.global.db, request.command);
  if (!outcome.run_id) return;
  const results::ResultStore store(context.global.db);
  print_line(base::trim(table(store, {*outcome.run_id}, context.global.json ? "json" : o.format,
                              context.global.no_color)));
  const int64_t failed = results::count_generations(store, *outcome.run_id).failed;
  if (failed > 0) spdlog::warn("{} generations failed; their rows say why (evalrun show)", failed);
  if (failed > 0 || !tokens_as_promised(store, *outcome.run_id))
    context.exit_code = static_cast<int>(base::ExitCode::kCorrectness);
}

void run(Context& context, const RunArguments& o) {
  const std::vector<OneRun> all = make_runs(o);
  const bool several = all.size() > 1;
  if (!o.shard.empty()) check_shard(o);
  if (o.lock_step) check_lock_step(o, all);
  const std::string nonce = make_nonce(o);
  // Processes of --devices look at theirs.
  if (o.energy && (o.devices.empty() || !o.peers.empty())) {
    if (o.model.device.empty()) require_energy("cpu");
    for (const std::string& device : o.model.device) require_energy(device);
  }
  if (o.shared() || !o.devices.empty()) check_shared(o, all);
  if (o.plan) return show_plans(context, o, all, nonce);
  if (o.shared()) return run_as_part(context, o, all.front(), nonce);
  if (!o.devices.empty()) return start_devices(context, o, nonce);
  LoadedModels models;
  if (several) check_plans(o, all, nonce, models);

  Instruments instruments(context.global);
  base::Clock& clock = instruments.clock();
  const int64_t begin_ns = clock.now_ns();
  std::optional<runners::PlanRequest> request;
  if (!several) request = make_request(o, all.front(), nonce, false, models);
  runners::RunnerOptions& options = instruments.options();
  std::optional<runners::ShardReporter> reporter;  // before the store: it may bring the file
  if (!o.copy_to.empty()) {
    reporter.emplace(instruments.progress(), clock, copy_settings(context, o, options.stop));
    options.progress = &*reporter;
  }
  results::ResultStore store(context.global.db);
  warn_if_unsafe(o.scoring);
  options.scoring = o.scoring;
  options.score_workers = o.jobs;
  runners::LineTurns turns(std::cin, std::cout, clock);
  if (o.lock_step) options.turns = &turns;
  if (!o.fault.empty()) request->faults = runners::planted_faults(request->suite, o.fault);
  std::vector<int64_t> runs;  // with something to show
  runners::RunStatus status = runners::RunStatus::kComplete;
  for (const OneRun& one : all) {
    if (several) {
      request.reset();  // and with it the models of the run before, unless this one has them, too
      request = make_request(o, one, nonce, true, models);
      spdlog::info("run {} of {}: {}", &one - all.data() + 1, all.size(), which(one));
    }
    if (o.max_time_s > 0) {  // for all runs together; the last one may have used it up
      const double left = o.max_time_s - 1e-9 * static_cast<double>(clock.now_ns() - begin_ns);
      options.max_time_s = several ? std::max(left, 1e-3) : o.max_time_s;
    }
    const runners::RunOutcome outcome =
        runners::run_suite(*request, store, o.lock_step ? turns.clock() : clock, options);
    status = outcome.status;
    if (reporter) reporter->ended(outcome);
    if (const int code = exit_code_of(outcome, request->command); code != 0)
      context.exit_code = code;
    if (outcome.measured == 0 && status == runners::RunStatus::kComplete)
      spdlog::info("all {} generations were stored already; nothing was measured again",
                   outcome.planned);
    spdlog::info("run {} (key {}) in {}", outcome.run_id, outcome.run_key.substr(0, 12),
                 context.global.db);
    if (outcome.stored_before + outcome.measured > outcome.failed) runs.push_back(outcome.run_id);
    if (status != runners::RunStatus::kComplete) break;
  }
  if (reporter) reporter->finish(status == runners::RunStatus::kComplete ? "complete" : "stopped");
  // After Ctrl-C the user wants the shell back; `report` prints the table of what is stored.
  if (status != runners::RunStatus::kInterrupted && !runs.empty() && !o.lock_step)
    print_line(base::trim(
        table(store, runs, context.global.json ? "json" : o.format, context.global.no_color)));
  if (status != runners::RunStatus::kInterrupted)
    for (const int64_t run : runs)
      if (!tokens_as_promised(store, run) && context.exit_code == 0)
        context.exit_code = static_cast<int>(base::ExitCode::kCorrectness);
}

}  // namespace

void add_run_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("run", "Measure a suite, store it, print its table");
  auto options = std::make_shared<RunArguments>();
  add_run_options(*command, *options);
  command->callback([&context, options, command] {
    const bool printable = options->format == "text" || options->format == "json";
    if (options->plan && !printable)
      refuse_given(*command, {"--format"}, "--plan, which is printed as text or json");
    options->lock_step = command->count("--lock-step") > 0;
    run(context, *options);
  });
}

}  // namespace evalrun::cli
