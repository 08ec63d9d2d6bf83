// evalrun check: the gate. Is this build as correct and as fast as the stored baseline?
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>

#include "engine/base/text.h"
#include "runners/cli/cli.h"
#include "runners/cli/gate/baseline_servers.h"
#include "runners/cli/gate/check_arguments.h"
#include "runners/cli/gate/gate_drill.h"
#include "runners/cli/gate/gate_plan.h"
#include "runners/cli/gate/temporary_folder.h"
#include "runners/cli/given_options.h"
#include "runners/cli/instruments.h"
#include "runners/cli/output.h"
#include "runners/cli/units.h"
#include "runners/plan/planted_faults.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;

void check_classes(const std::vector<std::string>& fail_on) {
  const std::vector<std::string> known = {"regression", "no-baseline", "correctness", "environment",
                                          "inconclusive"};
  for (const std::string& name : fail_on)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw base::usage_error(fmt::format("--fail-on: unknown class '{}'", name),
                              base::suggest(name, known));
}

void conclude(const CheckArguments& o, Context& context, const GateOutcome& outcome,
              int64_t begin_ns) {
  std::vector<std::string> failing = o.fail_on;
  if (outcome.baseline_run == 0 && o.allow_missing) std::erase(failing, "no-baseline");
  if (!o.verdict.empty()) base::write_file_atomic(o.verdict, gate_json(outcome) + "\n");
  reports::CiReport report = ci_report(outcome, failing);
  report.seconds = seconds_since(begin_ns);
  o.ci.write(report);
  for (const std::string& warning : outcome.result.warnings) spdlog::warn("{}", warning);
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

// One planted fault against the baseline (measured first when there is none); planted rows go into
// a database of their own.
GateOutcome check_with_fault(const CheckArguments& o, const Context& context) {
  runners::check_fault_name(o.fault);  // before anything is measured
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

// Whether an error is a server's, whose URL it names then, and not a file's.
bool names_a_server(const base::Error& error, const runners::Suite& suite) {
  return error.code() == ExitCode::kData &&
         std::any_of(suite.endpoints.begin(), suite.endpoints.end(),
                     [&](const runners::EndpointSpec& server) {
                       return error.message().find(server.url) != std::string::npos;
                     });
}

GateOutcome check_against_baseline(const CheckArguments& o, const Context& context) {
  const std::optional<RunReference> baseline = find_baseline(o.baseline, context.global.db);
  if (!baseline) return missing_baseline(o.baseline, context.global.db);
  require_yardstick(*baseline, o.baseline, gate_options(o));
  GateOutcome outcome;
  if (!o.run.empty()) {
    outcome = judge_stored(*baseline, find_run(o.run, context.global.db), gate_options(o));
  } else {
    const GateRequest request = request_like(o, *baseline);
    results::ResultStore store(context.global.db);
    Instruments instruments(context.global);
    try {
      outcome =
          measure_and_judge(request, *baseline, store, instruments.clock(), instruments.options());
    } catch (const base::Error& e) {
      if (!names_a_server(e, request.plan.suite)) throw;
      throw base::Error(e.code(), e.message(),
                        "a check has no verdict without its servers: start it again when they "
                        "answer; one that listens elsewhere now: --endpoint NAME=URL");
    }
  }
  outcome.baseline = o.baseline;
  return outcome;
}

GateOutcome check_against_build(const CheckArguments& o) {
  if (o.self_test) runners::check_fault_name(o.fault);
  AgainstRequest request = against_request(o, o.against);
  request.fault = o.fault;
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
  if (!o.against.empty() && !o.run.empty())
    throw base::usage_error("--against measures both builds now: it takes no RUN");
  if (!o.against.empty() && o.self_test && o.fault.empty())
    throw base::usage_error(
        "--against takes --self-test with a FAULT, which is planted in this build",
        "for every fault in turn leave --against out");
  if (o.plan && (o.self_test || !o.against.empty() || !o.run.empty()))
    throw base::usage_error("--plan is of a check against a stored baseline",
                            "--against, --self-test and RUN do not take it");
  const std::vector<std::string> suite = {"--suite", "--limit", "--repeats", "--max-new"};
  o.own_suite = std::any_of(suite.begin(), suite.end(), given);
  o.suite_named = given("--suite");
  o.extra_runs_named = given("--max-extra-runs");
  const bool all_drills = o.self_test && o.fault.empty();
  if (o.against.empty() && !all_drills) refuse({"--sessions"}, "a check without --against PROGRAM");
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
  if (!o.against.empty() || o.self_test)
    refuse({"--endpoint", "--yardstick"},
           "a check of evalrun's own builds: both are about servers of a stored baseline");
  if (o.plan) refuse({"--endpoint"}, "--plan, which measures nothing");
  if (!o.run.empty())
    refuse({"--model", "--draft", "--draft-dtype", "--device", "--dtype", "--isa", "--reproducible",
            "--kv-dtype", "--threads", "--chat-template", "--data-root", "--max-extra-runs",
            "--confirm", "--endpoint"},
           fmt::format("a check of the stored run '{}', which measures nothing", o.run));
}

// Nothing is measured; exit code 4 says that this baseline cannot judge what it is asked to.
void show_plan(const CheckArguments& o, Context& context) {
  const std::optional<RunReference> baseline = find_baseline(o.baseline, context.global.db);
  if (!baseline) {
    const GateOutcome missing = missing_baseline(o.baseline, context.global.db);
    throw base::Error(ExitCode::kNoBaseline, missing.result.summary, missing.note);
  }
  reports::GateOptions gate = gate_options(o);
  require_yardstick(*baseline, o.baseline, gate);
  gate.looks = 1 + o.max_extra_runs;
  const GatePlan plan = plan_gate(o.baseline, *baseline, gate);
  print_line(context.global.json ? plan_json_text(plan) : plan_text(plan));
  if (!plan.able()) context.exit_code = static_cast<int>(ExitCode::kInconclusive);
}

void run_check(const CheckArguments& o, Context& context) {
  base::SteadyClock clock;
  const int64_t begin_ns = clock.now_ns();
  check_classes(o.fail_on);
  o.ci.check(context.global);
  if (o.plan) return show_plan(o, context);
  if (o.self_test && o.fault.empty()) return run_self_test(o, context, begin_ns);
  GateOutcome outcome;
  try {
    outcome = !o.against.empty() ? check_against_build(o)
              : o.self_test      ? check_with_fault(o, context)
                                 : check_against_baseline(o, context);
  } catch (const std::exception& e) {
    tell_error(o, begin_ns, e);
    throw;
  }
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
                   fmt::format("How often the repeats, or the sessions of --against, are measured "
                               "again while inconclusive (--against: {})",
                               kLockStepBudget.extra_runs))
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
  command->add_flag("--plan", options->plan,
                    "Say what this stored baseline can judge on this machine; measure nothing");
  command
      ->add_option(
          "--endpoint", options->endpoints,
          "Where a server of the baseline is now, NAME=URL; repeat it for others (default: "
          "the URLs stored with the baseline)")
      ->type_name("NAME=URL")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--yardstick", options->yardstick,
          "Arm of the same run that a server's time is judged against, or 'none' for its "
          "time as it is (default: ar for a server on this machine, else the first server)")
      ->type_name("ARM");
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
          "Another build's evalrun: measure both now, in processes that take turns every few "
          "steps, instead of a stored baseline; with --self-test FAULT, this build has the fault")
      ->type_name("PROGRAM");
  command
      ->add_option("--sessions", options->sessions,
                   fmt::format("Processes of each build with --against, for a look at the figures "
                               "(default: {}; {} where the other build cannot take turns)",
                               kLockStepBudget.sessions, kInTurnsBudget.sessions))
      ->check(CLI::Range(2, 100));
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
      "  evalrun check --plan                            can this machine judge at all?\n"
      "  evalrun check --endpoint s=http://127.0.0.1:81  a server was started again elsewhere\n"
      "  evalrun check --self-test slow:5%               does the pipeline turn red?");
  command->callback([options, &context, drill, command] {
    options->self_test = drill->count() > 0;
    check_mode(*options, *command);
    run_check(*options, context);
  });
}

}  // namespace evalrun::cli
