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
  std::vector<std::string> methods, tasks = {"samples"}, parts = kParts;
  std::string data_root, out, fault, sampler = "inverse";
  double limit = 12, temperature = 1, top_p = 1;
  int max_new = 64, top_k = 0, contexts = 4, draws = 200, prompts = 6, samples = 16,
      sample_tokens = 32, answers = 1;
  int64_t law_draws = 100'000'000;
  uint64_t seed = 1;
  bool kv_cache = true;
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
  request.fault = o.fault;
  return request;
}

std::string p_text(double p) {
  return p < 1e-4 ? fmt::format("{:.0e}", p) : fmt::format("{:.4f}", p);
}

// "p .0123 by 18 tests; control refused (3e-09)"
std::string dist_text(const Json& part) {
  if (part.is_null()) return "-";
  const Json& result = part["result"];
  const size_t n = result["tests"].size();
  if (n == 0) return "nothing to test";
  const std::string found = fmt::format("p {} by {} tests", p_text(result["p"].get<double>()), n);
  if (part["outcome"] == "lossy") return found;
  const bool refused = part["negative_control"]["rejected"].get<bool>();
  const std::string power =
      result.contains("smallest_variation_found")
          ? fmt::format(", would find {:.2g}", result["smallest_variation_found"].get<double>())
          : "";
  return fmt::format("{}{}; control {} ({})", found, power, refused ? "refused" : "NOT refused",
                     p_text(part["negative_control"]["p"].get<double>()));
}

std::string greedy_text(const Json& part) {
  if (part.is_null()) return "-";
  return fmt::format("{} / {} / {}", part["identical"].get<int>(), part["near_ties"].get<int>(),
                     part["divergent"].get<int>());
}

// "40 of 40 the same tokens", "2,113 decisions made again", "60 decisions made again; inconclusive:
// no draft was refused".
std::string sampled_text(const Json& part) {
  if (part.is_null()) return "-";
  const auto why = part.value("why", std::string());
  const std::string remark = why.empty() ? "" : "; inconclusive: " + why;
  if (part["shown_by"] == "tokens")
    return fmt::format("{} of {} the same tokens{}", part["identical"].get<int>(),
                       part["answers"].get<int>(), remark);
  if (const auto blocked = part["blocked"].get<std::string>(); !blocked.empty())
    return "not audited: " + blocked;
  const auto wrong = part["first_differences"].size();
  const int64_t decisions = part["tests"].get<int64_t>() + part["draws"].get<int64_t>();
  if (wrong > 0)
    return fmt::format("{} of {} answers with a wrong decision", wrong, part["answers"].get<int>());
  return fmt::format("{} decisions made again{}{}", base::with_commas(decisions),
                     part.value("on_host", false) ? " on the host" : "", remark);
}

Json part_of(const Json& certificate, const char* name) {
  return certificate.contains(name) ? certificate[name] : Json();
}

// What a reader asks first when something differs.
void print_differences(const Json& certificate) {
  if (const Json sampled = part_of(certificate, "sampled");
      !sampled.is_null() && !sampled["first_differences"].empty()) {
    const Json& first = sampled["first_differences"][0];
    print_line(
        fmt::format("{}: first difference when sampling at token {} of {} {}: {}",
                    certificate["arm"]["method"].get<std::string>(), first["index"].get<int>(),
                    first["task"].get<std::string>(), first["prompt"].get<std::string>(),
                    first.contains("what") ? first["what"].get<std::string>()
                                           : fmt::format("{} and not {}", first["found"].get<int>(),
                                                         first["expected"].get<int>())));
  }
  const Json greedy = part_of(certificate, "greedy");
  if (greedy.is_null() || greedy["first_differences"].empty()) return;
  const Json& first = greedy["first_differences"][0];
  const Json& replay = greedy["replay"];
  print_line(fmt::format(
      "{}: first difference at token {} of {} {}: {} and not {}, {} below it ({} spacings of the "
      "number format); following plain decoding's text it differs at {} of {} places",
      certificate["arm"]["method"].get<std::string>(), first["index"].get<int>(),
      first["task"].get<std::string>(), first["prompt"].get<std::string>(),
      first["found"].get<int>(), first["expected"].get<int>(),
      first["gap"].is_null() ? "no logit" : fmt::format("{:.4f}", first["gap"].get<double>()),
      first["gap"].is_null() || first["spacing"].get<double>() == 0
          ? "no"
          : fmt::format("{:.1f}", first["gap"].get<double>() / first["spacing"].get<double>()),
      replay["differing"].get<int>(), replay["places"].get<int64_t>()));
}

// One of the parts that plain decoding has once: of the first certificate that holds it.
void print_plain_parts(const std::vector<Json>& certificates) {
  const auto first_with = [&](auto part) {
    for (const Json& c : certificates)
      if (const Json found = part(c); !found.is_null()) return found;
    return Json();
  };
  const Json audit = first_with([](const Json& c) {
    const Json sampled = part_of(c, "sampled");
    return sampled.is_null() ? Json() : part_of(sampled, "plain_decoding");
  });
  if (!audit.is_null()) print_line(fmt::format("Plain decoding, audit: {}.", sampled_text(audit)));
  const Json law = first_with([](const Json& c) { return part_of(c, "law"); });
  if (!law.is_null())
    print_line(fmt::format(
        "Plain decoding, law of its draws: p {} by {} draws of {} rows{}.",
        p_text(law["p"].get<double>()), law["draws"].get<int64_t>(), law["rows"].size(),
        law.contains("smallest_variation_found")
            ? fmt::format(", would find {:.2g}", law["smallest_variation_found"].get<double>())
            : ""));
  const Json texts = first_with([](const Json& c) { return part_of(c, "texts"); });
  if (!texts.is_null())
    print_line(fmt::format("Plain decoding against itself, test of texts: p {}.",
                           p_text(texts["plain_against_plain"]["p"].get<double>())));
}

// "Time of audits over that of the audited steps: sps:k=3 1.3, plain decoding 1.9."
void print_audit_times(const std::vector<Json>& certificates) {
  std::vector<std::string> list;
  const auto add = [&](const std::string& name, const Json& audit) {
    const double steps = audit.value("step_seconds", 0.0);  // 0: no audit
    if (steps > 0)
      list.push_back(fmt::format("{} {:.1f}", name, audit["audit_seconds"].get<double>() / steps));
  };
  Json plain;
  for (const Json& c : certificates) {
    const Json sampled = part_of(c, "sampled");
    if (sampled.is_null()) continue;
    add(c["arm"]["method"].get<std::string>(), sampled);
    if (plain.is_null()) plain = part_of(sampled, "plain_decoding");
  }
  if (!plain.is_null()) add("plain decoding", plain);
  if (!list.empty())
    print_line(
        fmt::format("Time of audits over that of the audited steps: {}.", fmt::join(list, ", ")));
}

// Of the parts that test laws: one for all certificates, which have the same parts.
double level_of(const std::vector<Json>& certificates) {
  for (const Json& c : certificates)
    for (const char* name : {"law", "steps", "texts"})
      if (const Json part = part_of(c, name); !part.is_null()) return part["level"].get<double>();
  return runners::kCertificateLevel;
}

void print_table(const std::vector<Json>& certificates) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& c : certificates) {
    const auto shown = c["shown"].get<std::string>();
    rows.push_back({c["arm"]["method"].get<std::string>(), c["arm"]["claims"].get<std::string>(),
                    greedy_text(part_of(c, "greedy")), sampled_text(part_of(c, "sampled")),
                    dist_text(part_of(c, "steps")), dist_text(part_of(c, "texts")),
                    c["outcome"].get<std::string>(), shown.empty() ? "-" : shown});
  }
  // Parts that nobody asked for are no columns.
  std::vector<std::string> head = {"method",  "claims",       "same / near tie / other",
                                   "sampled", "law of steps", "law of texts",
                                   "outcome", "shown"};
  for (size_t column = 6; column-- > 2;) {
    const auto at = static_cast<std::ptrdiff_t>(column);
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return r[column] != "-"; }))
      continue;
    head.erase(head.begin() + at);
    for (auto& row : rows) row.erase(row.begin() + at);
  }
  print_line(aligned_table(head, rows));
  print_line("");
  for (const Json& c : certificates) print_differences(c);
  print_plain_parts(certificates);
  print_audit_times(certificates);
  print_line(fmt::format(
      "Identical: the tokens of plain decoding. Decisions audited: every draw, every test and "
      "every\n"
      "draw after a refusal was made again by a second implementation, and was equal. Both prove.\n"
      "Law not refuted: tests found nothing. They fail below p {:.2g}, and must refuse a planted\n"
      "fault ({}).\n"
      "Would find: a total variation of that size at every place, in 95 of 100 tests.\n"
      "Greedy: prompts with the tokens of plain decoding / with a near tie first / with another\n"
      "first difference.",
      level_of(certificates), runners::kNegativeControl));
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
  const bool steps = wants(o, "steps"), texts = wants(o, "texts");
  const bool sampled = wants(o, "sampled"), law = wants(o, "law");
  const std::string why = fmt::format("--parts {}", fmt::join(o.parts, ","));
  if (!sampled) refuse_given(command, {"--answers"}, why);
  if (!law) refuse_given(command, {"--law-draws"}, why);
  if (!steps) refuse_given(command, {"--draws"}, why);
  if (!steps && !law) refuse_given(command, {"--contexts"}, why);
  if (!texts) refuse_given(command, {"--prompts", "--samples", "--sample-tokens"}, why);
  if (!steps && !texts && !sampled && !law)
    refuse_given(command, {"--temperature", "--top-k", "--top-p", "--sampler"}, why);
  if (!steps && !sampled && !law && !wants(o, "greedy")) refuse_given(command, {"--max-new"}, why);
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
    print_table(certificates);
  context.exit_code = exit_code_of(certificates);
}

}  // namespace

void add_verify_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("verify", "Show that methods are lossless: certificates");
  auto o = std::make_shared<VerifyArguments>();
  o->model.add(*command);
  command->add_option("--methods", o->methods, "Methods to certify, e.g. pld,sps:draft=layers:4")
      ->required();
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
      "Exit codes: 0 every claim holds, 4 something could not be shown, 5 a claim fails.\n\n"
      "Examples:\n"
      "  evalrun verify --methods pld,lookahead,self_draft\n"
      "  evalrun verify --methods eagle --parts greedy --tasks mt_bench,gsm8k --limit 40 -n 128\n"
      "  evalrun verify --methods sps:draft=trained --parts sampled --answers 3\n"
      "  evalrun verify --methods pld --fault wrong-accept:10%      must end with exit code 5");
  command->callback([&context, o, command] {
    check_parts(*o, *command);
    std::string list;
    for (const std::string& m : o->methods) list += (list.empty() ? "" : ",") + m;
    o->methods = runners::expanded_method_lists(methods::split_method_list(list));
    run_verify(context, *o);
  });
}

}  // namespace evalrun::cli
