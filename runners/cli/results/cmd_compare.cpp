// evalrun compare A B: two stored runs, paired per prompt.
#include <memory>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/compare/compare.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/output.h"
#include "runners/cli/results/token_differences.h"
#include "runners/cli/run_reference.h"
#include "runners/cli/units.h"

namespace evalrun::cli {
namespace {

struct CompareArguments {
  ReportOutput output;
  std::string a, b, adjust = "bh", scope = "fixed-set";
  double confidence = 0.95, min_effect = 0.03;
  bool tokens = false;
};

// The runs of one side: a comma between sessions.
std::vector<RunReference> find_sessions(const std::string& text, const std::string& db) {
  std::vector<RunReference> sessions;
  const std::vector<std::string> names = base::split(text, ',');
  for (const std::string& name : names) {
    if (name.empty() && names.size() > 1)
      throw base::usage_error(fmt::format("'{}': a run without a name", text),
                              "name sessions as A1,A2,A3; a label with a comma by its number");
    sessions.push_back(find_run(name, db));
  }
  return sessions;
}

std::vector<reports::StoredRun> stored(const std::vector<RunReference>& sessions) {
  std::vector<reports::StoredRun> runs;
  for (const RunReference& r : sessions) runs.push_back({r.store.get(), r.run_id});
  return runs;
}

void run_compare_tokens(const CompareArguments& options, Context& context) {
  const auto a = find_sessions(options.a, context.global.db);
  const auto b = find_sessions(options.b, context.global.db);
  if (a.size() != 1 || b.size() != 1)
    throw base::usage_error("--tokens compares two runs, not sessions",
                            "name one run on each side");
  const results::TokenComparison comparison = results::compare_tokens(
      *a.front().store, a.front().run_id, *b.front().store, b.front().run_id);
  if (context.global.json || options.output.format == "json")
    print_json_document(token_differences_json(comparison));
  else
    print_line(token_differences_text(comparison));
  if (!comparison.equal()) context.exit_code = static_cast<int>(base::ExitCode::kRegression);
}

void run_compare(const CompareArguments& options, const GlobalOptions& global) {
  const auto a = find_sessions(options.a, global.db), b = find_sessions(options.b, global.db);
  reports::CompareOptions compare;
  compare.min_effect = options.min_effect;
  compare.confidence = options.confidence;
  compare.adjustment = options.adjust == "holm"   ? base::Adjustment::kHolm
                       : options.adjust == "none" ? base::Adjustment::kNone
                                                  : base::Adjustment::kBenjaminiHochberg;
  compare.scope = reports::scope_named(options.scope);
  const reports::Comparison c = reports::compare_runs(stored(a), stored(b), compare);
  ReportOutput output = options.output;
  const reports::Format format = output.resolve(global);
  output.deliver(reports::rendered(c, format, output.layout(global)));
}

}  // namespace

void add_compare_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("compare", "Two stored runs, paired per prompt");
  auto options = std::make_shared<CompareArguments>();
  command
      ->add_option("a", options->a,
                   "Before: number, run:N, label, key or baseline; FILE or FILE:RUN for another "
                   "database; A1,A2,A3 for several sessions (processes) of the same")
      ->required();
  command->add_option("b", options->b, "After, named likewise")->required();
  using reports::Format;
  options->output.add_format(
      *command, {Format::kText, Format::kMarkdown, Format::kCsv, Format::kJson, Format::kLatex});
  command
      ->add_option("--min-effect", options->min_effect, "Changes smaller than this do not matter")
      ->transform(as_share())
      ->default_str("3%");
  command->add_option("--confidence", options->confidence, "Of the interval")
      ->check(CLI::Range(0.5, 0.9999))
      ->capture_default_str();
  command
      ->add_option(
          "--adjust", options->adjust,
          "p over all rows: bh (of the rows called changed, 5 % are not), holm (5 % chance "
          "of any false one) or none")
      ->check(CLI::IsMember({"bh", "holm", "none"}))
      ->capture_default_str();
  command
      ->add_option("--scope", options->scope,
                   "What the interval is for: these prompts measured again (fixed-set), new "
                   "prompts of the same kinds (same-kind; also: population), or new kinds")
      ->check(CLI::IsMember({"fixed-set", "same-kind", "new-kinds", "population"}))
      ->capture_default_str();
  command->add_flag("--tokens", options->tokens,
                    "Compare generation by generation instead: tokens, counters, statuses, scores; "
                    "exit code 1 where they differ");
  command->footer(
      "Prints what changed and exits with 0 whatever it is; `evalrun check` is the gate.\n\n"
      "Examples:\n"
      "  evalrun compare before after\n"
      "  evalrun compare main run:7 --format json\n"
      "  evalrun compare 1,2,3,4,5 6,7,8,9,10 --adjust holm\n"
      "  evalrun compare laptop.db:quick server.db:quick\n"
      "  evalrun compare whole.db merged.db --tokens");
  command->callback([options, command, &context] {
    if (!options->tokens) return run_compare(*options, context.global);
    if (options->output.format != "text" && options->output.format != "json")
      refuse_given(*command, {"--format"}, "--tokens, which is printed as text or json");
    refuse_given(*command, {"--min-effect", "--confidence", "--adjust", "--scope"},
                 "--tokens, which compares no speeds");
    run_compare_tokens(*options, context);
  });
}

}  // namespace evalrun::cli
