// evalrun run: plan, measure, store, print the table.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "engine/base/text.h"
#include "engine/devices.h"
#include "results/queries.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/instruments.h"
#include "runners/cli/measure/run/run_arguments.h"
#include "runners/cli/measure/run/run_end.h"
#include "runners/cli/measure/run/run_plan.h"
#include "runners/cli/measure/run/run_requests.h"
#include "runners/cli/measure/run/run_shared.h"
#include "runners/cli/output.h"
#include "runners/cluster/shard_reporter.h"
#include "runners/machine/gpu_state.h"
#include "runners/machine/processor_energy.h"
#include "runners/machine/row_cost_cache.h"
#include "runners/measure/turns.h"
#include "runners/plan/planted_faults.h"
#include "runners/plan/shards.h"

namespace evalrun::cli {
namespace {

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

// As JSON, a document; of several runs, a list of them.
void show_plans(const Context& context, const RunArguments& o, const std::vector<OneRun>& runs,
                const std::string& nonce) {
  const bool json = context.global.json || o.format == "json";
  nlohmann::ordered_json documents = nlohmann::json::array();
  LoadedModels models;
  for (const OneRun& run : runs) {
    const runners::PlanRequest request = make_run_request(o, run, nonce, runs.size() > 1, models);
    with_plan(context, request, [&](const PlanReport& report) {
      if (json) return documents.push_back(plan_json(report));
      if (runs.size() > 1)
        print_line(fmt::format("{}{}, run '{}'", &run == runs.data() ? "" : "\n", which_run(run),
                               request.label));
      print_plan(report);
    });
  }
  if (json) print_json_document(runs.size() > 1 ? documents : documents.front());
}

// What cannot work for one of several runs must fail now, not after the hours of those before.
void check_plans(const RunArguments& o, const std::vector<OneRun>& runs, const std::string& nonce,
                 LoadedModels& models) {
  for (const OneRun& run : runs)
    if (!run.suite.models.empty()) model_path(run.suite.models.front());
  for (const OneRun& run : runs) try {
      runners::make_plan(make_run_request(o, run, nonce, true, models));
    } catch (const base::Error& e) {
      throw base::Error(e.code(), fmt::format("{}: {}", which_run(run), e.message()), e.hint());
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
  if (!several) request = make_run_request(o, all.front(), nonce, false, models);
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
      request = make_run_request(o, one, nonce, true, models);
      spdlog::info("run {} of {}: {}", &one - all.data() + 1, all.size(), which_run(one));
    }
    if (o.max_time_s > 0) {  // for all runs together; the last one may have used it up
      const double left = o.max_time_s - 1e-9 * static_cast<double>(clock.now_ns() - begin_ns);
      options.max_time_s = several ? std::max(left, 1e-3) : o.max_time_s;
    }
    const runners::RunOutcome outcome =
        runners::run_suite(*request, store, o.lock_step ? turns.clock() : clock, options);
    status = outcome.status;
    if (reporter) reporter->ended(outcome);
    if (const int code = tell_end(outcome, request->command); code != 0) context.exit_code = code;
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
        run_table(store, runs, context.global.json ? "json" : o.format, context.global.no_color)));
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
