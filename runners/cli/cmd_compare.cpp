// evalrun compare A B: two stored runs, paired per prompt.
#include <memory>

#include "reports/compare.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/percent.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {
namespace {

struct Options {
  std::string a, b, format = "text", min_effect = "3%";
  double confidence = 0.95;
};

void run_compare(const Options& options, const GlobalOptions& global) {
  const RunReference a = find_run(options.a, global.db);
  const RunReference b = find_run(options.b, global.db);
  reports::CompareOptions compare;
  compare.min_effect = parse_share("--min-effect", options.min_effect);
  compare.confidence = options.confidence;
  const reports::Comparison c =
      reports::compare_runs(*a.store, a.run_id, *b.store, b.run_id, compare);
  const std::string format = global.json ? "json" : options.format;
  std::string text = format == "json" ? reports::to_json(c)
                     : format == "md" ? reports::to_markdown(c)
                                      : reports::to_text(c);
  while (text.ends_with('\n')) text.pop_back();
  print_line(text);
}

}  // namespace

void add_compare_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("compare", "Two stored runs, paired per prompt");
  auto options = std::make_shared<Options>();
  command
      ->add_option("a", options->a,
                   "Before: number, run:N, label, key or baseline; FILE or FILE:RUN for another "
                   "database")
      ->required();
  command->add_option("b", options->b, "After, named likewise")->required();
  command->add_option("-o,--format", options->format, "text, md or json")
      ->check(CLI::IsMember({"text", "md", "json"}))
      ->capture_default_str();
  command
      ->add_option("--min-effect", options->min_effect, "Changes smaller than this do not matter")
      ->capture_default_str();
  command->add_option("--confidence", options->confidence, "Of the interval")
      ->check(CLI::Range(0.5, 0.9999))
      ->capture_default_str();
  command->footer(
      "Prints what changed and exits with 0 whatever it is; `evalrun check` is the gate.\n\n"
      "Examples:\n"
      "  evalrun compare before after\n"
      "  evalrun compare main run:7 --format json\n"
      "  evalrun compare laptop.db:quick server.db:quick");
  command->callback([options, &context] { run_compare(*options, context.global); });
}

}  // namespace evalrun::cli
