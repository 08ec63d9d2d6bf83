// evalrun load: servers under load, closed loop and open loop, interleaved; throughput, latencies,
// goodput and saturation by level.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "datasets/dataset.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "reports/load/load_figures.h"
#include "results/load_file.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/instruments.h"
#include "runners/cli/output.h"
#include "runners/cli/units.h"
#include "runners/load/load.h"
#include "runners/machine/build_info.h"
#include "runners/plan/conversation.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;

struct LoadArguments {
  ModelOptions model;
  std::vector<std::string> endpoints, tasks = {"samples"}, concurrency, rates;
  std::string data_root, out = "load.jsonl", from, slo;
  double limit = 40, max_time_s = 0, timeout_s = 600;
  int max_new = 64, max_clients = 64, repeats = 3, block = 0, warmup = 1, retries = 0;
  int64_t max_requests = 10'000;
  uint64_t seed = 1;
  bool aa = false, ignore_eos = false;
  ReportOutput report;
};

const std::vector<std::string> kLoadClients = {"1", "2", "4", "8", "16"};

std::vector<results::LoadLevel> levels_of(const LoadArguments& o) {
  const bool usual = o.concurrency.empty() && o.rates.empty();
  std::vector<results::LoadLevel> levels =
      runners::closed_levels(usual ? kLoadClients : o.concurrency, "--concurrency");
  for (const results::LoadLevel& level : runners::open_levels(o.rates, o.max_clients, "--rate"))
    levels.push_back(level);
  return levels;
}

const char* cache_text(runners::EndpointSpec::Cache cache) {
  switch (cache) {
    case runners::EndpointSpec::Cache::kOff:
      return "off";
    case runners::EndpointSpec::Cache::kDeclaredOff:
      return "declared-off";
    case runners::EndpointSpec::Cache::kKept:
      break;
  }
  return "kept";
}

// The servers in their order; with --aa the baseline once more after itself.
std::vector<runners::EndpointSpec> servers_of(const LoadArguments& o,
                                              std::vector<results::LoadServer>& described) {
  std::vector<runners::EndpointSpec> servers;
  for (const std::string& text : o.endpoints) {
    servers.push_back(runners::parse_endpoint(text, "--endpoint"));
    if (!o.aa || servers.size() > 1) continue;
    servers.push_back(servers.front());
    servers.back().name += "-again";
  }
  for (const runners::EndpointSpec& s : servers)
    described.push_back(
        {.name = s.name, .spec = to_string(s), .model = {}, .cache = cache_text(s.cache)});
  if (o.aa && described.size() > 1) described[1].again = true;
  return servers;
}

// First turns, as the model sees them. The model is needed for its tokenizer alone and leaves with
// this function: memory is the servers'.
std::vector<runners::LoadPrompt> prompts_of(const LoadArguments& o) {
  std::vector<runners::LoadPrompt> prompts;
  std::vector<datasets::LoadedDataset> sets;
  for (const std::string& task : o.tasks)
    sets.push_back(datasets::load_dataset(task, datasets::resolve_data_root(o.data_root)));
  const std::shared_ptr<const engine::Model> model = o.model.load();
  const runners::Conversation conversation(*model);
  for (datasets::LoadedDataset& set : sets)
    for (const datasets::Prompt& prompt :
         datasets::limit_prompts(std::move(set.prompts), o.limit)) {
      runners::LoadPrompt p;
      p.id = sets.size() > 1 ? fmt::format("{} {}", set.task, prompt.id) : prompt.id;
      p.request.prompt_text = conversation.render(prompt, {});
      p.request.prompt_ids = conversation.encode(prompt, p.request.prompt_text);
      p.request.max_new = o.max_new;
      p.request.stop_texts = prompt.stop.strings;
      p.request.ignore_eos = o.ignore_eos;
      p.request.seed = base::combine_seeds({o.seed, prompts.size()});
      prompts.push_back(std::move(p));
    }
  return prompts;
}

runners::LoadPlan plan_of(const LoadArguments& o) {
  results::LoadSetup setup;
  setup.levels = levels_of(o);
  std::vector<runners::EndpointSpec> servers = servers_of(o, setup.servers);
  setup.repeats = o.repeats;
  setup.tasks = fmt::format("{}", fmt::join(o.tasks, ","));
  setup.max_new = o.max_new;
  setup.ignore_eos = o.ignore_eos;
  setup.retries = o.retries;
  setup.timeout_s = o.timeout_s;
  setup.seed = o.seed;
  setup.client = runners::build_info().version;
  return runners::make_load_plan(std::move(setup), std::move(servers), prompts_of(o),
                                 {.block = o.block, .max_requests = o.max_requests});
}

// Not after minutes of measuring. What the file holds stays.
void check_writable(const std::string& path) {
  if (!std::ofstream(path, std::ios::app))
    throw base::data_error(path, "", "cannot be written", "does the folder exist?");
}

// False where there is nothing to show yet.
bool show_load(const std::string& file, const reports::LoadObjective& slo, reports::Format format,
               const LoadArguments& o, Context& context) {
  const reports::LoadReport report = reports::load_report(results::read_load_file(file), slo);
  if (report.rows.empty() && o.from.empty()) return false;
  o.report.deliver(reports::rendered(report, format, o.report.layout(context.global)));
  if (std::any_of(report.rows.begin(), report.rows.end(), reports::all_failed))
    context.exit_code = static_cast<int>(ExitCode::kData);
  return true;
}

void say_end(const runners::LoadOutcome& outcome, Context& context) {
  using Status = runners::LoadOutcome::Status;
  if (outcome.status == Status::kComplete) return;
  const bool interrupted = outcome.status == Status::kInterrupted;
  context.exit_code =
      static_cast<int>(interrupted ? ExitCode::kInterrupted : ExitCode::kInconclusive);
  fmt::print(stderr, "{}, {} left; what was measured is kept, and the same command goes on\n",
             interrupted ? "interrupted" : "out of time (--max-time)",
             base::plural(outcome.blocks_left, "block"));
}

void run_load(LoadArguments& o, Context& context) {
  const reports::Format format = o.report.resolve(context.global);
  const reports::LoadObjective slo =
      o.slo.empty() ? reports::LoadObjective() : reports::parse_objective(o.slo, "--slo");
  if (!o.from.empty()) {
    show_load(o.from, slo, format, o, context);
    return;
  }
  runners::LoadPlan plan = plan_of(o);
  check_writable(o.out);
  Instruments instruments(context.global);
  runners::LoadTools tools{.clock = instruments.clock()};
  tools.stop = instruments.options().stop;
  tools.make = [&](const runners::EndpointSpec& spec) {
    runners::EndpointPatience patience;
    patience.retries = o.retries;
    patience.total_s = patience.stall_s = o.timeout_s;  // a server under load lets one wait
    runners::EndpointTools of_client{instruments.clock(), tools.stop, patience};
    of_client.alone = false;
    return runners::make_endpoint(spec, of_client);
  };
  const runners::LoadCourse course{.warmup = o.warmup, .max_time_s = o.max_time_s};
  runners::check_load_servers(plan, tools);
  results::LoadFile file(o.out, plan.setup);
  spdlog::info("{} requests in {}, to {}", base::with_commas(plan.requests()),
               base::plural(static_cast<int64_t>(plan.order.size()), "block"), o.out);
  runners::LoadOutcome outcome;
  try {
    outcome = runners::run_load(plan, course, tools, file, instruments.progress());
  } catch (const base::Error&) {
    show_load(o.out, slo, format, o, context);
    throw;
  }
  show_load(o.out, slo, format, o, context);
  say_end(outcome, context);
}

constexpr const char* kLoadFooter =
    "Addresses that are not named are never asked. Every server gets the same requests at every\n"
    "level, block by block in balanced order. Tokens are the servers' own counts. Results go to\n"
    "--out as they come, one line per request; the same command goes on after an interruption.\n"
    "docs/load.md\n\nExamples:\n"
    "  evalrun load --endpoint plain=http://127.0.0.1:8080,api=llama \\\n"
    "    --endpoint spec=http://127.0.0.1:8081,api=llama --tasks gsm8k --limit 40\n"
    "  evalrun load --endpoint a=http://127.0.0.1:8000,api=vllm --rate 0.5,1,2 --slo "
    "ttft=500ms,tpot=50ms\n"
    "  evalrun load --from load.jsonl --json";

void add_what(CLI::App& command, LoadArguments& o) {
  command
      .add_option(
          "--endpoint", o.endpoints,
          "NAME=URL[,api=...][,model=...][,key-env=VAR][,cache=...]; again for another, the "
          "first is the baseline")
      ->type_name("SERVER")
      ->allow_extra_args(false);
  o.model.add_model(command);
  command
      .add_option("--chat-template", o.model.chat_template,
                  "Chat template instead of the model's own: a name (evalrun list templates), or a "
                  "file with Jinja text")
      ->group("Model");
  command.add_option("--tasks", o.tasks, "Data sets the prompts come from; first turns")
      ->delimiter(',')
      ->capture_default_str();
  add_data_root(command, o.data_root);
  command.add_option("--limit", o.limit, "Prompts per task: a count or a share below 1; 0 = all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("-n,--max-new", o.max_new, "Tokens per answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--ignore-eos", o.ignore_eos, "Answers go on after end-of-text tokens");
  command.add_flag("--aa", o.aa, "The baseline twice: what no difference looks like");
}

void add_levels(CLI::App& command, LoadArguments& o) {
  const char* group = "Load";
  command
      .add_option("--concurrency", o.concurrency,
                  "Closed loop: so many clients (1,2,4,8,16 without --rate)")
      ->delimiter(',')
      ->type_name("CLIENTS")
      ->group(group);
  command.add_option("--rate", o.rates, "Open loop: Poisson arrivals, so many requests a second")
      ->delimiter(',')
      ->type_name("RATE")
      ->group(group);
  command.add_option("--max-clients", o.max_clients, "Open loop: requests in flight at most")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
  command.add_option("--repeats", o.repeats, "How often every prompt is asked at a level")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(group);
  command.add_option("--block", o.block, "Prompts of a block (default: from the clients)")
      ->check(CLI::Range(1, 1'000'000))
      ->group(group);
  command.add_option("--warmup", o.warmup, "Requests to each server before the first block")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->group(group);
  command.add_option("--seed", o.seed, "Of arrivals and of the order")
      ->capture_default_str()
      ->group(group);
}

void add_bounds(CLI::App& command, LoadArguments& o) {
  const char* group = "Bounds";
  command.add_option("--retries", o.retries, "Of a request; the wait counts as latency")
      ->check(CLI::Range(0, 20))
      ->capture_default_str()
      ->group(group);
  command.add_option("--timeout", o.timeout_s, "Seconds for one request")
      ->check(CLI::Range(0.1, 36000.0))
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-time", o.max_time_s, "For everything: 90s, 10m, 2h; 0 = no limit")
      ->transform(as_seconds())
      ->group(group);
  command.add_option("--max-requests", o.max_requests, "A larger load is refused")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void add_load_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("load", "Servers under load, with and without speculation");
  auto o = std::make_shared<LoadArguments>();
  add_what(*command, *o);
  add_levels(*command, *o);
  add_bounds(*command, *o);
  command->add_option("--slo", o->slo, "Bounds of goodput: ttft=500ms,tpot=50ms");
  command->add_option("--out", o->out, "File of the results (JSON Lines), also to go on with")
      ->capture_default_str();
  command->add_option("--from", o->from, "Figures of this file; no server is asked");
  using reports::Format;
  o->report.add_format(*command, {Format::kText, Format::kMarkdown, Format::kCsv, Format::kJson});
  command->footer(kLoadFooter);
  command->callback([o, command, &context] {
    if (!o->from.empty())
      refuse_given(*command,
                   {"--endpoint", "--model",   "--chat-template", "--tasks",    "--data-root",
                    "--limit",    "--max-new", "--ignore-eos",    "--aa",       "--concurrency",
                    "--rate",     "--repeats", "--max-clients",   "--block",    "--warmup",
                    "--seed",     "--retries", "--timeout",       "--max-time", "--max-requests",
                    "--out"},
                   "--from, which asks no server");
    run_load(*o, context);
  });
}

}  // namespace evalrun::cli
