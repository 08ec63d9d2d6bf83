// evalrun check: the gate. Is this build as correct and as fast as the stored baseline?
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "datasets/dataset.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/devices.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "results/queries.h"
#include "runners/cli/cli.h"
#include "runners/cli/command_line.h"
#include "runners/cli/gate/gate_against.h"
#include "runners/cli/gate/gate_ci.h"
#include "runners/cli/gate/gate_drill.h"
#include "runners/cli/gate/gate_run.h"
#include "runners/cli/gate/temporary_folder.h"
#include "runners/cli/given_options.h"
#include "runners/cli/instruments.h"
#include "runners/cli/output.h"
#include "runners/cli/units.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;

struct CheckArguments {
  ModelOptions model;
  CiOptions ci;
  std::string run, baseline = "main", data_root;
  double max_regression = 0.03, max_quality_loss = 0.05;  // shares
  std::string verdict, suite = "ci";
  std::vector<std::string> fail_on = {"regression", "no-baseline", "correctness", "environment"};
  std::string fault;    // of --self-test FAULT
  std::string against;  // another build's program
  int sessions = 3;     // processes of each build
  double significance = 0.05, limit = 0;
  int max_extra_runs = 2, repeats = 0, max_new = 0;
  bool confirm = true, allow_missing = false, self_test = false;
  bool own_suite = false;  // --suite, -r, -n or --limit was named
};

void check_classes(const std::vector<std::string>& fail_on) {
  const std::vector<std::string> known = {"regression", "no-baseline", "correctness", "environment",
                                          "inconclusive"};
  for (const std::string& name : fail_on)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw base::usage_error(fmt::format("--fail-on: unknown class '{}'", name),
                              base::suggest(name, known));
}

reports::GateOptions gate_options(const CheckArguments& o) {
  reports::GateOptions gate;
  gate.max_regression = o.max_regression;
  gate.max_quality_loss = o.max_quality_loss;
  gate.alpha = o.significance;
  return gate;
}

GateRequest make_request(const CheckArguments& o, const runners::Suite& suite, ModelOptions model) {
  GateRequest request;
  request.plan.suite = suite;
  request.plan.session = model.session_options(0);  // capacity follows from the prompts
  request.plan.data_root = datasets::resolve_data_root(o.data_root);
  request.plan.label = "check";
  request.plan.command = shell_line(process_arguments());
  request.plan.target = model.load();
  request.plan.draft = model.load_draft();
  request.gate = gate_options(o);
  request.max_extra_runs = o.max_extra_runs;
  request.confirm = o.confirm;
  return request;
}

[[noreturn]] void not_as_baseline(const CheckArguments& o, const std::string& option,
                                  const std::string& was, const std::string& given) {
  const std::string stored = was.empty() ? "the default" : fmt::format("'{}'", was);
  throw base::Error(
      ExitCode::kNoBaseline,
      fmt::format("not comparable: {} is '{}', baseline '{}' was measured with {}", option, given,
                  o.baseline, stored),
      fmt::format("leave {} out, or save a baseline measured with it: evalrun run ... {} {}, then "
                  "evalrun baseline save NAME",
                  option, option, given));
}

bool is_named_template(const std::string& name) {
  const std::vector<std::string> known = engine::chat_template_names();
  return std::find(known.begin(), known.end(), name) != known.end();
}

// The options that plain decoding of `baseline` was measured with. What the command line names must
// be the same: throws exit code 3 otherwise. Left open is what only the loaded model tells, see
// load_like().
struct StoredMode {
  ModelOptions model;
  std::string dtype, chat_template;  // as stored; "" = the model has no template
  std::string template_file;         // that held the template's text, "" = a named template
};

StoredMode stored_mode(const CheckArguments& o, const RunReference& baseline) {
  StoredMode mode;
  mode.model = o.model;
  ModelOptions& m = mode.model;
  std::string draft_dtype, kv_dtype, bits, isa, device;
  int threads = 0;
  for (const results::ArmRow& arm : results::arms(*baseline.store, baseline.run_id)) {
    const auto setting = [&](const char* name, const char* usual) {
      const auto found = arm.record.settings.find(name);
      return found == arm.record.settings.end() ? std::string(usual) : found->second;
    };
    if (arm.record.settings.contains("draft_dtype")) draft_dtype = setting("draft_dtype", "");
    if (arm.record.role != "baseline") continue;
    mode.dtype = arm.record.dtype;
    isa = arm.record.isa;
    device = arm.record.device;
    threads = arm.record.threads;
    kv_dtype = setting("kv_dtype", "");
    bits = setting("bits", kDefaultBits);
    mode.chat_template = setting("chat_template", "");
  }
  const auto restore = [&](const char* option, std::optional<std::string>& given,
                           const std::string& was) {
    if (given && *given != was) not_as_baseline(o, option, was, *given);
    if (!was.empty()) given = was;
  };
  if (m.device == "cuda" && device == "cuda:0") m.device = device;
  restore("--device", m.device, device);
  restore("--isa", m.isa, isa);
  restore("--reproducible", m.bits, bits);
  restore("--kv-dtype", m.kv_dtype, kv_dtype);
  // A GPU's arms say 1 thread whatever -t was: only loading takes them.
  if (!engine::is_gpu(device)) {
    if (m.threads.value_or(0) != 0 && *m.threads != threads)
      not_as_baseline(o, "--threads", std::to_string(threads), std::to_string(*m.threads));
    m.threads = threads;
  }
  if (!m.dtype || *m.dtype != kDefaultDtype) restore("--dtype", m.dtype, mode.dtype);
  // What a file's template is called, the loaded model tells.
  if (m.chat_template && is_named_template(*m.chat_template))
    restore("--chat-template", m.chat_template, mode.chat_template);
  if (!draft_dtype.empty()) m.draft_dtype = draft_dtype;
  auto environment = results::environment(*baseline.store, baseline.run_id);
  if (m.model.empty()) m.model = environment["model_path"];
  if (m.draft.empty()) m.draft = environment["draft_path"];
  mode.template_file = environment["chat_template_file"];
  return mode;
}

// Loads the models with the template that the baseline was measured with, or throws exit code 3.
void load_with_template(const CheckArguments& o, const StoredMode& mode, GateRequest& request) {
  const auto name = [&] {
    const auto* chat = request.plan.target->chat_template();
    return chat == nullptr ? std::string("none") : chat->name();
  };
  ModelOptions named = mode.model;
  std::error_code error;
  const bool by_file = mode.template_file.ends_with(".jinja") &&
                       std::filesystem::is_regular_file(mode.template_file, error);
  if (is_named_template(mode.chat_template))
    named.chat_template = mode.chat_template;
  else if (by_file && !named.chat_template)
    named.chat_template = mode.template_file;
  else
    not_as_baseline(o, "--chat-template", mode.chat_template, name());
  request.plan.target = nullptr;  // not two copies of the weights at once
  request.plan.draft = nullptr;
  request.plan.target = named.load();
  request.plan.draft = named.load_draft();
  if (name() != mode.chat_template)
    not_as_baseline(o, "--chat-template", mode.chat_template, name());
}

// The baseline's suite, model and engine mode.
GateRequest request_like(const CheckArguments& o, const RunReference& baseline) {
  const std::string where = fmt::format("suite of baseline '{}'", o.baseline);
  const auto row = results::find_run_row(*baseline.store, baseline.run_id);
  EVALRUN_CHECK(row.has_value(), "baseline '{}' names no run", o.baseline);
  runners::Suite suite = runners::parse_suite(row->suite_json, where);
  runners::complete_suite(suite, where);
  const StoredMode mode = stored_mode(o, baseline);
  GateRequest request = make_request(o, suite, mode.model);
  // `--dtype auto` is what the file gives.
  const std::string dtype(engine::name_of(request.plan.target->format()));
  if (dtype != mode.dtype) not_as_baseline(o, "--dtype", mode.dtype, dtype);
  // The name stored is that of the model's own template or of the one named: which, the model says.
  const auto* own = request.plan.target->chat_template();
  if (!mode.chat_template.empty() && (own == nullptr || own->name() != mode.chat_template))
    load_with_template(o, mode, request);
  return request;
}

runners::Suite self_test_suite(const CheckArguments& o) {
  runners::Suite suite = runners::load_suite(o.suite);
  if (o.repeats > 0) suite.repeats = o.repeats;
  if (o.limit != 0) suite.limit = o.limit;
  if (o.max_new > 0) suite.max_new = o.max_new;
  if (!suite.models.empty() && o.model.model.empty())
    throw base::usage_error(fmt::format("suite {} names models of its own", o.suite),
                            "the self-test measures one: name it with -m");
  suite.models.clear();
  runners::complete_suite(suite, o.suite);
  return suite;
}

double seconds_since(int64_t begin_ns) {
  base::SteadyClock clock;
  return static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
}

// Carries `decide` out. An error is told to the CI system, too, and goes on to main(): a job whose
// report is missing looks like one that never ran.
template <typename F>
auto tell_errors(const CheckArguments& o, int64_t begin_ns, const F& decide) {
  try {
    return decide();
  } catch (const std::exception& e) {
    reports::CiReport report = ci_report(e, o.baseline);
    report.seconds = seconds_since(begin_ns);
    try {
      o.ci.write(report);
    } catch (const base::Error& unwritten) {
      spdlog::error("{}", unwritten.message());  // the first error is the one that counts
    }
    throw;
  }
}

void conclude(const CheckArguments& o, Context& context, const GateOutcome& outcome,
              int64_t begin_ns) {
  std::vector<std::string> failing = o.fail_on;
  if (outcome.baseline_run == 0 && o.allow_missing) std::erase(failing, "no-baseline");
  if (!o.verdict.empty()) base::write_file_atomic(o.verdict, gate_json(outcome) + "\n");
  reports::CiReport report = ci_report(outcome, failing);
  report.seconds = seconds_since(begin_ns);
  o.ci.write(report);
  if (context.global.verbosity >= 0 && !outcome.result.checks.empty())
    fmt::print(stderr, "{}\n", reports::to_text(outcome.result));
  if (context.global.json)
    print_line(gate_json(outcome));
  else
    print_line(gate_line(outcome));
  const std::string name = failure_class(outcome.code);
  const bool fails = std::find(failing.begin(), failing.end(), name) != failing.end();
  if (fails) context.exit_code = static_cast<int>(outcome.code);
  if (!fails && !name.empty()) spdlog::warn("{}: not a failure here", name);
}

// All drills; the exit code says whether the gate did what it should.
void run_self_test(const CheckArguments& o, Context& context, int64_t begin_ns) {
  const TemporaryFolder folder("self-test");
  Instruments instruments(context.global);
  std::vector<std::vector<std::string>> rows;
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  bool passed = true, speed_missed = false;
  const auto note = [&](const DrillOutcome& d) {
    const int expected = static_cast<int>(d.drill.expected);
    const int found = static_cast<int>(d.gate.code);
    passed = passed && d.passed();
    // Correctness is judged by equality, so only these can go wrong by the machine's doing.
    speed_missed = speed_missed || (!d.passed() && (d.drill.expected == ExitCode::kOk ||
                                                    d.drill.expected == ExitCode::kRegression));
    spdlog::info("{}: exit code {}, expected {}", d.drill.name, found, expected);
    rows.push_back({d.drill.name, std::to_string(expected), std::to_string(found),
                    d.passed() ? "ok" : "WRONG", base::format_duration(d.seconds),
                    d.gate.result.summary});
    array.push_back({{"drill", d.drill.name},
                     {"expected", expected},
                     {"found", found},
                     {"ok", d.passed()},
                     {"cause", d.drill.cause ? reports::to_string(*d.drill.cause) : ""},
                     {"seconds", d.seconds},
                     {"verdict", nlohmann::ordered_json::parse(gate_json(d.gate))}});
  };
  reports::CiReport report = tell_errors(o, begin_ns, [&] {
    const GateRequest request = make_request(o, self_test_suite(o), o.model);
    return ci_report(run_drills(request, folder.file("runs.db"), instruments.clock(),
                                instruments.options(), note),
                     request);
  });
  report.seconds = seconds_since(begin_ns);
  if (!o.verdict.empty()) base::write_file_atomic(o.verdict, array.dump(2) + "\n");
  o.ci.write(report);
  if (context.global.json)
    print_json_document(array);
  else
    print_line(aligned_table({"drill", "expected", "found", "", "time", "why"}, rows));
  if (!context.global.json)
    print_line("\nhow often the gate is wrong: docs/measurement.md; here: scripts/gate-study");
  if (speed_missed)
    spdlog::warn(
        "a drill about speed went wrong: most likely speedups move between runs of this machine by "
        "as much as the fault. --against measures two builds in turns, --max-regression 10% asks "
        "for less; docs/measurement.md, \"How often the gate is wrong\"");
  if (!passed) context.exit_code = static_cast<int>(ExitCode::kCorrectness);
}

// One planted fault against the baseline (measured first when there is none); planted rows go into
// a database of their own.
GateOutcome check_with_fault(const CheckArguments& o, const Context& context) {
  check_fault(o.fault);  // before anything is measured
  const TemporaryFolder folder("self-test");
  Instruments instruments(context.global);
  // A suite that is named is measured; a stored baseline has one of its own.
  const auto store = std::make_shared<results::ResultStore>(folder.file("runs.db"));
  std::optional<RunReference> baseline;
  if (!o.own_suite) baseline = find_baseline(o.baseline, context.global.db);
  const GateRequest undisturbed =
      baseline ? request_like(o, *baseline) : make_request(o, self_test_suite(o), o.model);
  const GateRequest request = with_fault(undisturbed, o.fault);
  if (!baseline) {
    if (!o.own_suite)
      spdlog::info("no baseline '{}' in {}: measuring one first", o.baseline, context.global.db);
    baseline = measure_baseline(undisturbed, store, instruments.clock(), instruments.options());
  }
  GateOutcome outcome =
      measure_and_judge(request, *baseline, *store, instruments.clock(), instruments.options());
  outcome.baseline = o.baseline;
  return outcome;
}

GateOutcome check_against_baseline(const CheckArguments& o, const Context& context) {
  const std::optional<RunReference> baseline = find_baseline(o.baseline, context.global.db);
  if (!baseline) return missing_baseline(o.baseline, context.global.db);
  GateOutcome outcome;
  if (!o.run.empty()) {
    outcome = judge_stored(*baseline, find_run(o.run, context.global.db), gate_options(o));
  } else {
    const GateRequest request = request_like(o, *baseline);
    results::ResultStore store(context.global.db);
    Instruments instruments(context.global);
    outcome =
        measure_and_judge(request, *baseline, store, instruments.clock(), instruments.options());
  }
  outcome.baseline = o.baseline;
  return outcome;
}

// The words of `evalrun run` that measure the suite as asked for, in this build and any other: old
// names are known to all.
std::vector<std::string> run_words(const CheckArguments& o) {
  const ModelOptions& m = o.model;
  std::vector<std::string> words = {o.suite, "-q", "-m", m.path()};
  const auto add = [&](const char* name, const std::string& value, const std::string& usual = "") {
    if (value != usual) words.insert(words.end(), {name, value});
  };
  add("--draft", m.draft);
  add("--device", m.device.value_or(""));
  add("--dtype", m.dtype.value_or(""));
  add("--isa", m.isa.value_or(""));
  add("--bits", m.bits.value_or(""));
  add("--kv-dtype", m.kv_dtype.value_or(""));
  add("--chat-template", m.chat_template.value_or(""));
  add("--data-root", o.data_root);
  add("-t", std::to_string(m.threads.value_or(0)), "0");
  add("-r", std::to_string(o.repeats), "0");
  add("-n", std::to_string(o.max_new), "0");
  add("--limit", fmt::format("{}", o.limit), "0");
  return words;
}

GateOutcome check_against_build(const CheckArguments& o) {
  AgainstRequest request;
  request.program = o.against;
  request.arguments = run_words(o);
  request.gate = gate_options(o);
  request.sessions = o.sessions;
  request.max_extra_runs = o.max_extra_runs;
  return check_against(request);
}

// Refuses what the mode at hand does not read, and notes whether a suite was named.
void check_mode(CheckArguments& o, const CLI::App& command) {
  const auto given = [&](const std::string& name) { return command.count(name) > 0; };
  const auto refuse = [&](const std::vector<std::string>& names, const std::string& why) {
    refuse_given(command, names, why);
  };
  if (o.self_test && !o.run.empty())
    throw base::usage_error("--self-test measures runs of its own: it takes no RUN");
  if (!o.against.empty() && (o.self_test || !o.run.empty()))
    throw base::usage_error(
        "--against measures both builds now: it takes no RUN and no --self-test");
  const std::vector<std::string> suite = {"--suite", "--limit", "--repeats", "--max-new"};
  o.own_suite = std::any_of(suite.begin(), suite.end(), given);
  if (o.against.empty()) refuse({"--sessions"}, "a check without --against PROGRAM");
  if (!o.against.empty())
    refuse({"--baseline", "--allow-missing-baseline", "--confirm"},
           "--against, which measures both builds now");
  else if (o.self_test && o.fault.empty())
    refuse({"--baseline", "--allow-missing-baseline", "--fail-on"},
           "--self-test of all faults, which measures baselines of its own");
  else if (o.self_test && o.own_suite)
    refuse({"--baseline"}, "--self-test with a suite named: it measures its own baseline");
  else if (!o.self_test)
    refuse(suite, "a check against a stored baseline, which measures the baseline's own suite");
  if (!o.run.empty())
    refuse({"--model", "--draft", "--device", "--dtype", "--isa", "--reproducible", "--kv-dtype",
            "--threads", "--chat-template", "--data-root", "--max-extra-runs", "--confirm"},
           fmt::format("a check of the stored run '{}', which measures nothing", o.run));
}

void run_check(const CheckArguments& o, Context& context) {
  base::SteadyClock clock;
  const int64_t begin_ns = clock.now_ns();
  check_classes(o.fail_on);
  o.ci.check(context.global);
  if (o.self_test && o.fault.empty()) return run_self_test(o, context, begin_ns);
  const GateOutcome outcome = tell_errors(o, begin_ns, [&] {
    if (!o.against.empty()) return check_against_build(o);
    return o.self_test ? check_with_fault(o, context) : check_against_baseline(o, context);
  });
  conclude(o, context, outcome, begin_ns);
}

}  // namespace

void add_check_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("check", "Gate: as correct and as fast as the baseline?");
  auto options = std::make_shared<CheckArguments>();
  command
      ->add_option("run", options->run,
                   "Stored run to judge (default: measure the baseline's suite now)")
      ->option_text("[RUN]");
  options->model.add(*command);
  command->add_option("--baseline", options->baseline, "Name of the baseline, or FILE:NAME")
      ->capture_default_str();
  add_data_root(*command, options->data_root);
  command
      ->add_option("--max-regression", options->max_regression,
                   "Largest slowdown of a method's speedup that passes")
      ->transform(as_share())
      ->default_str("3%");
  command
      ->add_option("--max-quality-loss", options->max_quality_loss,
                   "Largest loss of a method's mean score that passes")
      ->transform(as_share())
      ->default_str("5%");
  command->add_option("--significance", options->significance, "One-sided level of the tests")
      ->check(CLI::Range(0.0001, 0.5))
      ->capture_default_str();
  command
      ->add_option("--max-extra-runs", options->max_extra_runs,
                   "How often the repeats are measured again while inconclusive")
      ->check(CLI::Range(0, 20))
      ->capture_default_str();
  command->add_flag("--confirm,!--no-confirm", options->confirm,
                    "Measure a slowdown a second time before calling it one (default)");
  command->add_flag("--allow-missing-baseline", options->allow_missing,
                    "No baseline yet is not a failure");
  command
      ->add_option("--fail-on", options->fail_on,
                   "Classes that set the exit code: regression, no-baseline, correctness, "
                   "environment, inconclusive")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--verdict", options->verdict, "File for the verdict as JSON");
  options->ci.add(*command);
  auto* drill = command->add_option(
      "--self-test", options->fault,
      "Prove that the gate works: plant every fault in turn; with FAULT (slow:5%, ar-slow:5%, "
      "all-slow:5%, wrong-accept, miscount, device-fault) plant that one and exit with the gate's "
      "own code");
  drill->expected(0, 1)->option_text("[FAULT]");
  command
      ->add_option(
          "--against", options->against,
          "Another build's evalrun: measure both now, in processes that take turns, instead "
          "of a stored baseline")
      ->type_name("PROGRAM");
  command->add_option("--sessions", options->sessions, "Processes of each build with --against")
      ->check(CLI::Range(2, 100))
      ->capture_default_str();
  const char* group = "Self-test and --against";
  command->add_option("--suite", options->suite, "Suite it measures")
      ->capture_default_str()
      ->group(group);
  command->add_option("--limit", options->limit, "Prompts per task")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  command->add_option("-r,--repeats", options->repeats, "Repeats")
      ->check(CLI::PositiveNumber)
      ->group(group);
  command->add_option("-n,--max-new", options->max_new, "Tokens per answer")
      ->check(CLI::PositiveNumber)
      ->group(group);
  command->footer(
      "Exit codes: 0 ok, 1 slower (confirmed), 3 no baseline or not comparable, 4 inconclusive "
      "(only\n"
      "with --fail-on), 5 wrong output, 6 machine unfit. One line on standard output says the "
      "same.\n\n"
      "Examples:\n"
      "  evalrun run ci && evalrun baseline save main    once\n"
      "  evalrun check --verdict verdict.json            after every change\n"
      "  evalrun check --against old/evalrun             two builds, measured in turns\n"
      "  evalrun check --self-test slow:5%               does the pipeline turn red?");
  command->callback([options, &context, drill, command] {
    options->self_test = drill->count() > 0;
    check_mode(*options, *command);
    run_check(*options, context);
  });
}

}  // namespace evalrun::cli
