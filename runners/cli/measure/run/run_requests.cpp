#include "runners/cli/measure/run/run_requests.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "datasets/spec.h"
#include "engine/model/format_copy.h"
#include "methods/registration.h"
#include "runners/cli/command_line.h"
#include "runners/cli/row_cost_file.h"
#include "runners/plan/method_lists.h"
#include "runners/plan/shards.h"

namespace evalrun::cli {
namespace {

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
  // Allowed: a small model in bf16 may pay for a large target in 4 bits.
  if (request.draft != nullptr &&
      engine::weight_bits(request.draft->format()) > engine::weight_bits(request.target->format()))
    spdlog::warn(
        "the draft model is computed in {}, wider than the target's {}: --draft-dtype {} "
        "reads fewer bytes",
        engine::name_of(request.draft->format()), engine::name_of(request.target->format()),
        engine::name_of(request.target->format()));
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

}  // namespace

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

std::string which_run(const OneRun& run) {
  std::string text;
  if (!run.suite.models.empty()) text = "model " + run.suite.models.front();
  if (!run.setting.name.empty()) text += (text.empty() ? "" : ", ") + run.setting.name;
  return text;
}

std::string make_nonce(const RunArguments& o) {
  if (o.resume || !o.nonce.empty()) return o.nonce;
  return fmt::format("{:x}.{:x}", std::chrono::system_clock::now().time_since_epoch().count(),
                     ::getpid());
}

runners::PlanRequest make_run_request(const RunArguments& o, const OneRun& run,
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

}  // namespace evalrun::cli
