// evalrun: entry point. Global options, the list of commands, and the one place where errors become
// a message and an exit code.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "engine/base/text.h"
#include "results/store.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/old_names.h"
#include "runners/cli/output.h"
#include "runners/machine/build_info.h"

namespace evalrun::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  evalrun run quick                     measure the built-in quick suite and print its table
  evalrun report                        print the table of the newest run again
  evalrun compare before after          two runs, paired per prompt

`evalrun COMMAND --help` shows the options of a command. Results go to standard output, everything
else to standard error. Exit codes: 0 ok, 1 slower, 2 usage, 3 no baseline, 4 inconclusive,
5 wrong output, 6 environment, 7 data or files, 8 device fault, 130 interrupted.)";

std::string version_text() {
  const runners::BuildInfo& build = runners::build_info();
  return fmt::format("evalrun {} (commit {}, {}, {}, CUDA {}, result schema {})", build.version,
                     build.commit, build.build_type, build.compiler,
                     build.cuda ? "compiled in" : "not compiled in", results::kSchemaVersion);
}

void add_global_options(CLI::App& app, GlobalOptions& global) {
  app.add_option("--db", global.db, "Result database")
      ->envname("EVALRUN_DB")
      ->capture_default_str();
  app.add_flag("--json", global.json, "Results as JSON on standard output");
  app.add_flag("--no-color", global.no_color, "No colours, also on a terminal");
  app.add_flag_callback(
      "-v,--verbose", [&global] { global.verbosity = 1; }, "More messages");
  app.add_flag_callback(
      "-q,--quiet", [&global] { global.verbosity = -1; }, "Only warnings and errors");
  app.set_version_flag("--version", version_text, "Version, commit, CUDA and schema version");
}

// Logs go to standard error; standard output holds results only.
void start_logging(const GlobalOptions& global) {
  const bool color = colour_wanted(global.no_color, STDERR_FILENO);
  auto logger = color ? spdlog::stderr_color_mt("evalrun") : spdlog::stderr_logger_mt("evalrun");
  logger->set_pattern(color ? "%^%l%$: %v" : "%l: %v");
  logger->set_level(global.verbosity > 0   ? spdlog::level::debug
                    : global.verbosity < 0 ? spdlog::level::warn
                                           : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

int report_error(base::ExitCode code, const std::string& message) {
  fmt::print(stderr, "error: {}\n", message);
  return static_cast<int>(code);
}

// What CLI11 found wrong, with the nearest command when the first word was none.
int report_usage(const CLI::App& app, const CLI::ParseError& error, const std::string& first) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  if (first.empty() || first[0] == '-' ||
      std::find(names.begin(), names.end(), first) != names.end()) {
    std::string command;
    for (const CLI::App* sub : app.get_subcommands()) command = sub->get_name() + " ";
    return report_error(base::ExitCode::kUsage,
                        fmt::format("{}\n  hint: see `evalrun {}--help`", error.what(), command));
  }
  return report_error(base::ExitCode::kUsage, fmt::format("unknown command '{}'\n  hint: {}", first,
                                                          base::suggest(first, names)));
}

void add_commands(CLI::App& app, Context& context) {
  using Add = void (*)(CLI::App&, Context&);
  const std::pair<const char*, std::vector<Add>> groups[] = {
      {"Measure",
       {add_run_command, add_report_command, add_compare_command, add_merge_command,
        add_cluster_command, add_load_command}},
      {"Gate", {add_check_command, add_baseline_command, add_verify_command}},
      {"Explain",
       {add_list_command, add_show_command, add_predict_command, add_cost_command,
        add_tune_command}},
      {"Data",
       {add_data_command, add_score_command, add_judge_command, add_audit_command,
        add_corpus_command, add_validate_command, add_doctor_command}},
      {"Tools",
       {add_tokenize_command, add_generate_command, add_perplexity_command, add_capture_command,
        add_serve_command, add_man_command, add_completion_command}},
  };
  for (const auto& [name, commands] : groups)
    for (const Add add : commands) {
      const size_t before = app.get_subcommands(nullptr).size();
      add(app, context);
      app.get_subcommands(nullptr)[before]->group(name);
    }
}

int run_main(int argc, char** argv) {
  CLI::App app(
      "evalrun: how much faster is lossless LLM decoding, measured so that it can be trusted",
      "evalrun");
  app.formatter(help_formatter());  // before the commands, which take it over
  app.require_subcommand(1);
  app.fallthrough();  // global options may stand after the command
  Context context;
  add_global_options(app, context.global);

  add_commands(app, context);
  app.footer(kFooter);  // after the commands: each new one takes its parent's

  // Callbacks run while parsing; the logger must be up before, with the final verbosity.
  app.parse_complete_callback([&] {
    start_logging(context.global);
    check_format(app, context.global);
  });
  const std::vector<std::string> words = with_new_names({argv + 1, argv + argc});
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11: last one first
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return report_usage(app, e, words.empty() ? "" : words.front());
  } catch (const base::Error& e) {
    return report_error(e.code(),
                        base::Error(e.code(), with_option(app, e.message()), e.hint()).what());
  }
  return context.exit_code;
}

}  // namespace
}  // namespace evalrun::cli

int main(int argc, char** argv) {
  using evalrun::base::ExitCode;
  try {
    return evalrun::cli::run_main(argc, argv);
  } catch (const evalrun::base::Error& e) {
    return evalrun::cli::report_error(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return evalrun::cli::report_error(ExitCode::kEnvironment,
                                      "out of memory\n  hint: use a smaller model, --limit or "
                                      "--max-new; results so far are kept");
  } catch (const std::exception& e) {
    return evalrun::cli::report_error(
        ExitCode::kCorrectness,
        fmt::format("{}\n  hint: this is a fault of evalrun itself; please report it with the "
                    "command line",
                    e.what()));
  }
}
