// evalrun verify: is a method lossless? Certificates for every arm, stored and printed.
#include <spdlog/spdlog.h>

#include <fstream>
#include <memory>

#include "datasets/dataset.h"
#include "engine/base/text.h"
#include "methods/faults.h"
#include "methods/registration.h"
#include "results/certificates.h"
#include "runners/cli/cli.h"
#include "runners/cli/command_line.h"
#include "runners/cli/given_options.h"
#include "runners/cli/instruments.h"
#include "runners/cli/measure/verify_endpoint.h"
#include "runners/cli/measure/verify_table.h"
#include "runners/cli/output.h"
#include "runners/plan/method_lists.h"
#include "runners/verify/certify.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using base::ExitCode;

const std::vector<std::string> kParts = {"greedy", "sampled", "law", "steps", "texts"};

struct VerifyArguments {
  ModelOptions model;
  EndpointVerifyOptions endpoints;
  std::vector<std::string> methods, tasks = {"samples"}, parts = kParts;
  std::string data_root, out, fault, sampler = "inverse";
  double limit = 12, temperature = 1, top_p = 1;
  int max_new = 64, top_k = 0, contexts = 4, draws = 200, prompts = 6, samples = 16,
      sample_tokens = 32, answers = 1;
  int64_t law_draws = 100'000'000;
  uint64_t seed = 1;
  bool kv_cache = true, bound = false;
};

bool wants(const VerifyArguments& o, const char* part) {
  return std::find(o.parts.begin(), o.parts.end(), part) != o.parts.end();
}

runners::CertifyRequest make_request(const VerifyArguments& o) {
  // Wrong words are said before a model is read for seconds.
  const engine::SamplingParams sampling{o.temperature, o.top_k, o.top_p,
                                        engine::parse_sampler(o.sampler, "--sampler")};
  engine::validate(sampling);
  if (o.temperature == 0)
    throw base::usage_error("--temperature 0 is greedy: there is no distribution to test",
                            "give one above 0, or --parts greedy");
  if (!o.fault.empty())
    methods::plant_fault(methods::parse_method("ar").info->build({}, {}), o.fault);
  runners::CertifyRequest request;
  runners::Suite& suite = request.plan.suite;
  suite.name = "verify";
  suite.methods = o.methods;
  for (const std::string& task : o.tasks) suite.tasks.push_back({.task = task});
  suite.limit = o.limit;
  suite.max_new = std::max(o.max_new, o.sample_tokens);
  suite.max_turns = 1;
  suite.aa = false;
  suite.evaluate = false;
  suite.kv_cache = o.kv_cache;
  suite.seed = o.seed;
  runners::complete_suite(suite, "command line");
  request.plan.session = o.model.session_options(0);
  request.plan.data_root = datasets::resolve_data_root(o.data_root);
  request.plan.skip_long = true;
  request.plan.command = shell_line(process_arguments());
  request.plan.target = o.model.load();
  request.plan.draft = o.model.load_draft();
  request.greedy = wants(o, "greedy");
  request.sampled = wants(o, "sampled");
  request.law = wants(o, "law");
  request.steps = wants(o, "steps");
  request.texts = wants(o, "texts");
  request.contexts = o.contexts;
  request.text_prompts = o.prompts;
  request.answers = {sampling, o.seed, o.answers};
  request.law_options.sampling = sampling;
  request.law_options.draws = o.law_draws;
  request.law_options.seed = o.seed;
  request.step_options = {o.draws, sampling, o.seed};
  request.text_options = {o.samples, o.sample_tokens, sampling, o.seed};
  request.bound = o.bound;
  request.fault = o.fault;
  return request;
}

// Writes `text`; with `append` after what the file holds. An empty text tests whether the file can
// be written.
void write_file(const std::string& path, const std::string& text, bool append) {
  std::ofstream out(path, append ? std::ios::app : std::ios::trunc);
  out << text << std::flush;
  if (!out)
    throw base::data_error(path, "", "cannot be written",
                           "does the folder exist, and has the disk space left?");
}

int exit_code_of(const std::vector<Json>& certificates) {
  const auto any = [&](const char* outcome) {
    return std::any_of(certificates.begin(), certificates.end(),
                       [&](const Json& c) { return c["outcome"] == outcome; });
  };
  if (any("fails")) return static_cast<int>(ExitCode::kCorrectness);
  if (any("inconclusive")) return static_cast<int>(ExitCode::kInconclusive);
  return static_cast<int>(ExitCode::kOk);
}

// Refuses parts nobody knows, and options of parts that are not tested.
void check_parts(const VerifyArguments& o, const CLI::App& command) {
  for (const std::string& part : o.parts)
    if (std::find(kParts.begin(), kParts.end(), part) == kParts.end())
      throw base::usage_error(fmt::format("--parts: unknown part '{}'", part),
                              base::suggest(part, kParts));
  if (command.count("--endpoint") > 0) return;  // endpoint_run() says what is not for it
  const bool steps = wants(o, "steps"), texts = wants(o, "texts");
  const bool sampled = wants(o, "sampled"), law = wants(o, "law");
  const std::string why = fmt::format("--parts {}", fmt::join(o.parts, ","));
  if (!sampled) refuse_given(command, {"--answers", "--bound"}, why);
  if (!law) refuse_given(command, {"--law-draws"}, why);
  if (!steps) refuse_given(command, {"--draws"}, why);
  if (!steps && !law) refuse_given(command, {"--contexts"}, why);
  if (!texts) refuse_given(command, {"--prompts", "--samples", "--sample-tokens"}, why);
  if (!steps && !texts && !sampled && !law)
    refuse_given(command, {"--temperature", "--top-k", "--top-p", "--sampler"}, why);
  if (!steps && !sampled && !law && !wants(o, "greedy")) refuse_given(command, {"--max-new"}, why);
}

// Of --endpoint: its options, and what the other options mean there.
EndpointVerifyRun endpoint_run(const VerifyArguments& o, const CLI::App& command) {
  const std::string why = "--endpoint";
  if (o.endpoints.against.empty())
    throw base::usage_error("--endpoint needs --against",
                            "name the same model on a server without speculation");
  refuse_given(command,
               {"--methods", "--fault", "--no-kv-cache", "--sampler", "--answers", "--law-draws",
                "--prompts", "--samples", "--draft", "--draft-dtype", "--bound"},
               why);
  const bool parts_given = command.count("--parts") > 0;
  const bool sampling = parts_given || command.count("--temperature") > 0;
  for (const char* part : {"law", "texts"})
    if (parts_given && wants(o, part))
      throw base::usage_error(fmt::format("--parts {} is not for --endpoint", part),
                              "there: greedy, sampled (equal seeds), steps (the law of draws)");
  const EndpointVerifyRun run{
      .model = o.model,
      .tasks = o.tasks,
      .data_root = o.data_root,
      .out = o.out,
      .limit = o.limit,
      .greedy = wants(o, "greedy"),
      .seeded = sampling && wants(o, "sampled"),
      .draws = sampling && wants(o, "steps"),
      .max_new = o.max_new,
      .n_draws = o.draws,
      .draw_tokens = command.count("--sample-tokens") > 0 ? o.sample_tokens : 8,
      .places = o.contexts,
      .sampling = {o.temperature, o.top_k, o.top_p, engine::Sampler::kInverse},
      .seed = o.seed};
  if (!run.draws)
    refuse_given(command, {"--draws", "--contexts", "--sample-tokens"},
                 sampling ? "--parts without steps" : "--endpoint without --temperature");
  if (!run.draws && !run.seeded)
    refuse_given(command, {"--temperature", "--top-k", "--top-p"}, "--endpoint without sampling");
  return run;
}

void run_verify(Context& context, const VerifyArguments& o) {
  if (!o.out.empty()) write_file(o.out, "", true);  // not after minutes of testing
  runners::CertifyRequest request = make_request(o);
  results::ResultStore store(context.global.db);
  Instruments instruments(context.global);
  request.runner = instruments.options();

  std::vector<Json> certificates;
  const std::string commit = runners::build_info().commit;
  // A certificate of a build with local changes could be one of other code.
  const bool may_keep = o.fault.empty() && runners::build_info().id == commit;
  const auto known = [&](const results::ArmRecord& arm, const std::string& tests) {
    if (!may_keep) return false;
    const auto stored =
        results::find_certificate(store, runners::key_by_tests(arm, commit, Json::parse(tests)));
    if (!stored) return false;
    const Json document = Json::parse(stored->document);
    if (document["tests"].dump() != tests) return false;
    spdlog::info("{}: certified {}, not tested again (another --db does)", arm.label,
                 stored->created);
    certificates.push_back(document);
    return true;
  };
  const auto done = [&](const runners::Certificate& c) {
    certificates.push_back(runners::to_json(c));
    if (!o.fault.empty()) return;
    const Json& json = certificates.back();
    results::put_certificate(
        store, {json["key"], c.created, c.arm.label, json["outcome"], json["proven"], json.dump()});
  };
  runners::certify(request, instruments.clock(), known, done);
  instruments.progress().end();
  if (!o.out.empty()) write_file(o.out, Json(certificates).dump(2) + "\n", false);
  if (context.global.json)
    print_json_document(Json(certificates));
  else
    print_certificates(certificates);
  context.exit_code = exit_code_of(certificates);
}

}  // namespace

void add_verify_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("verify", "Show that methods are lossless: certificates");
  auto o = std::make_shared<VerifyArguments>();
  o->model.add(*command);
  command->add_option("--methods", o->methods, "Methods to certify, e.g. pld,sps:draft=layers:4");
  o->endpoints.add(*command);
  command->add_option("--tasks", o->tasks, "Tasks the prompts come from")
      ->delimiter(',')
      ->capture_default_str();
  add_data_root(*command, o->data_root);
  command->add_option("--limit", o->limit, "Prompts per task: a count or a share below 1")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--parts", o->parts, "What to look at: greedy, sampled, law, steps, texts")
      ->delimiter(',')
      ->capture_default_str();
  command->add_flag("!--no-kv-cache", o->kv_cache, "Recompute the context in every step");
  command->add_option("--out", o->out, "File for the certificates as JSON");
  command->add_option(
      "--fault", o->fault,
      "Plant a fault (wrong-accept:10%, verify-temperature:95%, ...) in every method: "
      "verify must fail; nothing is stored");
  const auto positive = CLI::PositiveNumber;
  const char* group = "Greedy";
  command->add_option("-n,--max-new", o->max_new, "Tokens per answer")
      ->check(positive)
      ->capture_default_str()
      ->group(group);
  group = "Sampling";
  command->add_option("--temperature", o->temperature, "Of the distribution that is tested")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command->add_option("--top-k", o->top_k, "0 = off")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command->add_option("--top-p", o->top_p, "1 = off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--sampler", o->sampler,
                   "How tokens are drawn: inverse, or gumbel (noise that drafters share)")
      ->capture_default_str()
      ->group(group);
  command->add_option("--answers", o->answers, "Sampled answers per prompt of the part sampled")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(group);
  command
      ->add_flag("--bound", o->bound,
                 "With the part sampled: tau beside the most that any lossless rule of "
                 "verification could keep of the same drafts")
      ->group(group);
  command->add_option("--law-draws", o->law_draws, "Draws of each row of the part law")
      ->check(CLI::Range(int64_t{1000}, int64_t{10'000'000'000}))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--contexts", o->contexts,
                   "Places of the parts steps and law, early and late in answers")
      ->check(positive)
      ->capture_default_str()
      ->group(group);
  command->add_option("--draws", o->draws, "Continuations of every place")
      ->check(CLI::Range(100, 1000000))
      ->capture_default_str()
      ->group(group);
  command->add_option("--prompts", o->prompts, "Prompts of the text test")
      ->check(positive)
      ->capture_default_str()
      ->group(group);
  command->add_option("--samples", o->samples, "Answers per prompt of the text test")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str()
      ->group(group);
  command->add_option("--sample-tokens", o->sample_tokens, "Tokens per answer of the text test")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str()
      ->group(group);
  command->add_option("--seed", o->seed, "Of all draws")->capture_default_str()->group(group);
  command->footer(
      "greedy: the tokens of every prompt must be those of plain decoding.\n"
      "sampled: the same for sampled answers with the same seeds. Methods that put drawn drafts "
      "to\n"
      "a rejection test keep the distribution and not the tokens; of these every decision is made\n"
      "again by a second implementation.\n"
      "law: plain decoding's own draws must follow the distribution of its logits.\n"
      "steps: after one text the next tokens, drawn many times, must follow the target's own\n"
      "distribution there (test of fit).\n"
      "texts: whole answers must be exchangeable with those of plain decoding (permutation test).\n"
      "The same method with a planted wrong acceptance must fail steps and texts; else they have\n"
      "shown nothing. Only greedy and sampled prove; the others say how small a fault they would\n"
      "have found. Certificates are stored, one of an arm for each way of sampling; a new one\n"
      "replaces its like. Reports show them beside arms of the same build, weights and engine\n"
      "mode.\n"
      "--endpoint asks a server with speculation, and one without, the same prompts (those of "
      "--tasks,\n"
      "and repetitive and tool-call prompts of our own) by several clients at a time; with "
      "--temperature\n"
      "it tests the law of draws as well: docs/verify-endpoints.md.\n"
      "Exit codes: 0 every claim holds, 4 something could not be shown, 5 a claim fails, 7 a "
      "server in\n"
      "trouble.\n\n"
      "Examples:\n"
      "  evalrun verify --methods pld,lookahead,self_draft\n"
      "  evalrun verify --methods eagle --parts greedy --tasks mt_bench,gsm8k --limit 40 -n 128\n"
      "  evalrun verify --methods sps:draft=trained --parts sampled --answers 3\n"
      "  evalrun verify --methods sps:draft=trained,verify=block --parts sampled --bound\n"
      "  evalrun verify --methods pld --fault wrong-accept:10%      must end with exit code 5\n"
      "  evalrun verify --endpoint spec=http://127.0.0.1:8081 --against "
      "plain=http://127.0.0.1:8080");
  command->callback([&context, o, command] {
    check_parts(*o, *command);
    if (!o->endpoints.endpoint.empty()) {
      const EndpointVerifyRun run = endpoint_run(*o, *command);
      if (!o->out.empty()) write_file(o->out, "", true);  // not after minutes of asking
      verify_endpoints(context, o->endpoints, run);
      return;
    }
    refuse_given(*command, endpoint_verify_options(), "verify without --endpoint");
    if (o->methods.empty())
      throw base::usage_error("--methods is required",
                              "name methods, or a server with --endpoint and --against");
    std::string list;
    for (const std::string& m : o->methods) list += (list.empty() ? "" : ",") + m;
    o->methods = runners::expanded_method_lists(methods::split_method_list(list));
    run_verify(context, *o);
  });
}

}  // namespace evalrun::cli
