// evalrun report: the table of a run, from stored rows.
#include <memory>

#include "engine/base/text.h"
#include "reports/claimed.h"
#include "reports/report.h"
#include "results/regroup.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {
namespace {

struct Options {
  std::string run, format = "text", metric = "sum", interval = "t", by = "task", control, out;
  std::vector<int> pass_k;
  bool why = false, exclude_degenerate = false;
  std::string claims;               // CSV file of published numbers
  std::vector<std::string> papers;  // of it; empty = all
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

// The report with published figures behind its own.
std::string render_with_claims(const reports::Report& report, const results::ResultStore& store,
                               const reports::Claims& claims, const std::string& format) {
  const reports::Claimed claimed = reports::compare_with_claims(report, claims);
  if (format == "json") return reports::to_json(claimed, report);
  return render(report, store, format) + (format == "md" ? reports::to_markdown(claimed, report)
                                                         : reports::to_text(claimed, report));
}

// Throws usage_error where published figures have no place, data_error for a broken file.
reports::Claims read_claims(const Options& options, const std::string& format) {
  if (options.claims.empty()) {
    if (options.papers.empty()) return {};
    throw base::usage_error("--paper chooses from published numbers", "add --claims FILE");
  }
  if (format != "text" && format != "md" && format != "json")
    throw base::usage_error(fmt::format("--claims: no published numbers in {}", format),
                            "use -o text, md or json");
  return reports::select_papers(reports::read_claims(options.claims), options.papers);
}

void run_report(const Options& options, const GlobalOptions& global) {
  const std::string format = global.json ? "json" : options.format;
  const reports::Claims claims = read_claims(options, format);
  const RunReference run = find_run(options.run, global.db);
  reports::ReportOptions report_options;
  for (const auto e : {reports::Estimator::kGeo, reports::Estimator::kLegacy})
    if (options.metric == reports::to_string(e)) report_options.estimator = e;
  if (options.interval == "bootstrap") report_options.interval = reports::IntervalKind::kBootstrap;
  report_options.why = options.why;
  report_options.control = options.control;
  report_options.exclude_degenerate = options.exclude_degenerate;
  if (!options.pass_k.empty()) report_options.pass_k = options.pass_k;
  std::unique_ptr<results::ResultStore> parts;
  if (options.by != "task")
    parts = results::regrouped(
        *run.store,
        {options.by == "category" ? results::Axis::kCategory : results::Axis::kLanguage});
  const results::ResultStore& store = parts ? *parts : *run.store;
  const reports::Report report = reports::build_report(store, run.run_id, report_options);
  std::string text = claims.file.empty() ? render(report, store, format)
                                         : render_with_claims(report, store, claims, format);
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
                   "Speedup as ratio of sums (sum), geometric mean per prompt (geo), or mean of "
                   "speeds as Spec-Bench and EAGLE publish it (legacy)")
      ->check(CLI::IsMember({"sum", "geo", "legacy"}))
      ->capture_default_str();
  command
      ->add_option(
          "--interval", options->interval,
          "Of speedups and tau, for new prompts: Student's t (t) or a paired bootstrap over "
          "prompts, seeded from the run's key (bootstrap)")
      ->check(CLI::IsMember({"t", "bootstrap"}))
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
  command->add_flag("--exclude-degenerate", options->exclude_degenerate,
                    "Leave answers that run in a loop out of the speed figures, of both arms");
  command
      ->add_option("--claims", options->claims,
                   "CSV file of published numbers (docs/claims.md) to set beside the measured ones")
      ->type_name("FILE");
  command->add_option("--paper", options->papers, "Only these papers of it")->delimiter(',');
  command->footer(
      "Examples:\n"
      "  evalrun report\n"
      "  evalrun report before --why -o md\n"
      "  evalrun report other.db:run:3 -o json\n"
      "  evalrun report -o html --out report.html\n"
      "  evalrun report quality --quality-against ar_tuned:adapter=space-sft\n"
      "  evalrun report --claims claims.csv --paper falcon,eagle");
  command->callback([options, &context] { run_report(*options, context.global); });
}

}  // namespace evalrun::cli
