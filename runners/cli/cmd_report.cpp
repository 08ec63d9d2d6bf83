// evalrun report: the table of a run, from stored rows.
#include <memory>

#include "engine/base/text.h"
#include "reports/report.h"
#include "results/regroup.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {
namespace {

struct Options {
  std::string run, format = "text", metric = "sum", by = "task", control, out;
  std::vector<int> pass_k;
  bool why = false;
};

std::string render(const reports::Report& report, const results::ResultStore& store,
                   const std::string& format) {
  if (format == "md") return reports::to_markdown(report);
  if (format == "csv") return reports::to_csv(report);
  if (format == "json") return reports::to_json(report);
  if (format == "latex") return reports::to_latex(report);
  if (format == "html") return reports::to_html(report, store);
  return reports::to_text(report);
}

void run_report(const Options& options, const GlobalOptions& global) {
  const RunReference run = find_run(options.run, global.db);
  reports::ReportOptions report_options;
  report_options.estimator =
      options.metric == "geo" ? reports::Estimator::kGeo : reports::Estimator::kSum;
  report_options.why = options.why;
  report_options.control = options.control;
  if (!options.pass_k.empty()) report_options.pass_k = options.pass_k;
  std::unique_ptr<results::ResultStore> parts;
  if (options.by != "task")
    parts = results::regrouped(
        *run.store, run.run_id,
        options.by == "category" ? results::Axis::kCategory : results::Axis::kLanguage);
  const results::ResultStore& store = parts ? *parts : *run.store;
  const reports::Report report = reports::build_report(store, run.run_id, report_options);
  std::string text = render(report, store, global.json ? "json" : options.format);
  if (!options.out.empty()) return base::write_file_atomic(options.out, text);
  // The renderers end their last line; print_line does so again.
  while (text.ends_with('\n')) text.pop_back();
  print_line(text);
}

}  // namespace

void add_report_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("report", "Print the table of a stored run");
  auto options = std::make_shared<Options>();
  command
      ->add_option("run", options->run,
                   "Number, run:N, label, key or baseline; FILE or FILE:RUN for another database "
                   "(default: the newest run)")
      ->option_text("[RUN]");
  command->add_option("-o,--format", options->format, "text, md, csv, json, latex or html")
      ->check(CLI::IsMember({"text", "md", "csv", "json", "latex", "html"}))
      ->capture_default_str();
  command->add_option("--out", options->out, "File to write (default: standard output)");
  command
      ->add_option("--metric", options->metric,
                   "Speedup as ratio of sums (sum) or geometric mean per prompt (geo)")
      ->check(CLI::IsMember({"sum", "geo"}))
      ->capture_default_str();
  command->add_option("--by", options->by, "A table per data set (task), or per part of it")
      ->check(CLI::IsMember({"task", "category", "language"}))
      ->capture_default_str();
  command
      ->add_option(
          "--pass-k", options->pass_k,
          "k of pass@k; needs as many samples of every problem (default: 1, 10 and 100 where "
          "there are enough)")
      ->delimiter(',')
      ->check(CLI::Range(1, 100));
  command
      ->add_option("--quality-against", options->control,
                   "Arm whose answers' scores quality is compared with, as the table names it "
                   "(default: the baseline)")
      ->type_name("METHOD");
  command->add_flag("--why", options->why,
                    "Columns that explain the speedup (csv and json always have them)");
  command->footer(
      "Examples:\n"
      "  evalrun report\n"
      "  evalrun report before --why -o md\n"
      "  evalrun report other.db:run:3 -o json\n"
      "  evalrun report -o html --out report.html\n"
      "  evalrun report quality --quality-against ar_tuned:adapter=space-sft");
  command->callback([options, &context] { run_report(*options, context.global); });
}

}  // namespace evalrun::cli
