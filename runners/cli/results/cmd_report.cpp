// evalrun report: the table of a run, from stored rows.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>

#include "engine/base/text.h"
#include "reports/claims/published_vs_measured.h"
#include "reports/figures/report.h"
#include "reports/papers/table.h"
#include "reports/table/comparison_table.h"
#include "reports/table/grouping.h"
#include "results/regroup.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/output.h"
#include "runners/cli/run_reference.h"
#include "runners/cli/stored_row_times.h"

namespace evalrun::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::vector<std::string> group_by;
  ReportOutput output;
  std::string metric = "sum", interval = "t", scope = "same-kind", by = "task", control;
  std::vector<int> pass_k;
  bool why = false, explain = false, wide = false, exclude_degenerate = false;
  std::vector<std::string> columns;
  std::string claims;               // CSV file of published numbers
  std::vector<std::string> papers;  // of it; empty = all
  std::string as;                   // form of a paper's table
  bool unequal_budgets = false;
};

using reports::Format;

// The report, with published figures after its own where there are `claims`.
std::string render(const reports::Report& report, const results::ResultStore& store,
                   const reports::Claims& claims, Format format, const reports::Layout& layout) {
  std::optional<reports::PublishedVsMeasured> claimed;
  if (!claims.file.empty()) claimed = reports::compare_with_claims(report, claims);
  if (format == Format::kHtml)
    return reports::to_html(report, store, claimed ? &*claimed : nullptr);
  if (!claimed) return reports::rendered(report, format, layout);
  if (format == Format::kJson) return reports::to_json(*claimed, report);
  reports::Document document = reports::document(report);
  add_claims(*claimed, report, document);
  return reports::render(document, format, layout);
}

// Throws usage_error where the options do not fit a paper's table.
void check_as(const ReportArguments& options, Format format) {
  if (options.as.empty()) return;
  if (format == Format::kHtml)
    throw base::usage_error("--as: no paper's tables in html",
                            "use -o text, md, latex, csv or json");
  if (options.by != "task")
    throw base::usage_error("--as with --split-by",
                            "a paper's table says itself what it is cut into");
}

// Throws usage_error where published figures have no place, data_error for a broken file.
reports::Claims read_claims(const ReportArguments& options, Format format) {
  if (options.claims.empty()) {
    if (options.papers.empty()) return {};
    throw base::usage_error("--paper chooses from published numbers", "add --claims FILE");
  }
  if (options.as.empty() && format == Format::kCsv)
    throw base::usage_error("--claims: no published numbers in csv",
                            "use -o text, md, latex, json or html");
  return reports::select_papers(reports::read_claims(options.claims), options.papers);
}

reports::ReportOptions report_options(const ReportArguments& options, Format format) {
  reports::ReportOptions o;
  for (const auto e :
       {reports::Estimator::kGeo, reports::Estimator::kLegacy, reports::Estimator::kLegacyDecode})
    if (options.metric == reports::to_string(e)) o.estimator = e;
  if (options.interval == "bootstrap") o.interval = reports::IntervalKind::kBootstrap;
  o.scope = reports::scope_named(options.scope);
  o.why = options.why;
  o.explain = options.explain;
  o.columns = options.columns;
  o.parts = format == Format::kHtml;
  const bool all_figures =
      format == Format::kJson || format == Format::kCsv || format == Format::kHtml;
  const bool side_by_side = !options.group_by.empty() || options.runs.size() > 1;
  o.step_detail = (all_figures || options.why) && !side_by_side && options.as.empty();
  o.control = options.control;
  o.exclude_degenerate = options.exclude_degenerate;
  o.row_times = stored_row_times;
  if (!options.pass_k.empty()) o.pass_k = options.pass_k;
  return o;
}

// The parts that `names` cut data sets into; names of no part are left out.
std::vector<results::Axis> axes_of(const std::vector<std::string>& names) {
  std::vector<results::Axis> axes;
  for (const std::string& name : names) {
    if (name == "category") axes.push_back(results::Axis::kCategory);
    if (name == "language") axes.push_back(results::Axis::kLanguage);
  }
  return axes;
}

// A run by the name that was given, data sets cut as asked for.
reports::Report report_of(const std::string& name, const std::vector<results::Axis>& axes,
                          const ReportArguments& options, Format format, const std::string& db) {
  const RunReference run = find_run(name, db);
  if (axes.empty()) return build_report(*run.store, run.run_id, report_options(options, format));
  return build_report(*results::regrouped(*run.store, axes), run.run_id,
                      report_options(options, format));
}

// Several runs, or the parts of one, side by side.
std::string render_grouped(const ReportArguments& options, Format format,
                           const reports::Layout& layout, const std::string& db) {
  if (options.by != "task")
    throw base::usage_error(
        "--split-by and --columns-by are two ways to cut tasks",
        "--split-by gives every part a full table, --columns-by sets them side by side");
  if (!options.as.empty())
    throw base::usage_error("--as: a paper's table shows one run",
                            "leave out --columns-by, and name one run");
  if (!options.claims.empty())
    throw base::usage_error("--claims: no published numbers beside groups",
                            "leave out --columns-by, and name one run");
  if (format == Format::kHtml)
    throw base::usage_error(
        "groups side by side are not drawn in html",
        "use -o text, md, csv, json or latex; or --split-by for a page of the parts");
  std::vector<std::string> parts = options.group_by;
  const bool by_model = std::erase(parts, "model") > 0 || options.runs.size() > 1;
  const std::vector<results::Axis> axes = axes_of(parts);
  reports::GroupedReport grouped;
  if (by_model) {
    std::vector<reports::Report> runs;
    for (const std::string& name : options.runs)
      runs.push_back(report_of(name, axes, options, format, db));
    grouped = reports::group_by_run(runs);
  } else {
    grouped = reports::group_by_part(
        report_of(options.runs.empty() ? "" : options.runs.front(), axes, options, format, db),
        fmt::format("{}", fmt::join(parts, ", ")));
  }
  return reports::rendered(grouped, format, layout);
}

std::string render_run(const ReportArguments& options, Format format, const reports::Layout& layout,
                       const std::string& db) {
  const reports::Claims claims = read_claims(options, format);
  check_as(options, format);
  const auto forms = options.as.empty() ? std::vector<const reports::PaperForm*>()
                                        : reports::find_paper_forms(options.as);
  const RunReference run = find_run(options.runs.empty() ? "" : options.runs.front(), db);
  if (!forms.empty()) {
    // One that was asked for by name is refused; among a paper's tables it is left out.
    const auto unequal = options.unequal_budgets ? reports::UnequalBudgets::kMark
                         : forms.size() > 1      ? reports::UnequalBudgets::kLeaveOut
                                                 : reports::UnequalBudgets::kRefuse;
    std::vector<std::string> left_out;
    const auto tables = reports::paper_tables(
        *run.store, run.run_id, report_options(options, format), forms, claims, unequal, &left_out);
    // CSV and JSON have no place for it.
    for (const std::string& why : left_out) spdlog::warn("{}", why);
    return reports::rendered(tables, format, layout);
  }
  std::unique_ptr<results::ResultStore> parts;
  if (options.by != "task") parts = results::regrouped(*run.store, axes_of({options.by}));
  const results::ResultStore& store = parts ? *parts : *run.store;
  const reports::Report report = build_report(store, run.run_id, report_options(options, format));
  return render(report, store, claims, format, layout);
}

void run_report(const ReportArguments& options, const GlobalOptions& global) {
  ReportOutput output = options.output;
  const Format format = output.resolve(global);
  reports::Layout layout = output.layout(global);
  if (options.wide) layout.width = 0;
  output.deliver(options.group_by.empty() && options.runs.size() < 2
                     ? render_run(options, format, layout, global.db)
                     : render_grouped(options, format, layout, global.db));
}

}  // namespace

void add_report_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("report", "Print the table of a stored run");
  auto options = std::make_shared<ReportArguments>();
  command
      ->add_option("run", options->runs,
                   "Number, run:N, label, key or baseline; FILE or FILE:RUN for another database "
                   "(default: the newest run). Several, of a model each: side by side")
      ->option_text("[RUN...]");
  options->output.add_format(*command, {Format::kText, Format::kMarkdown, Format::kCsv,
                                        Format::kJson, Format::kLatex, Format::kHtml});
  command->add_option("--out", options->output.file, "File to write (default: standard output)");
  command
      ->add_option("--estimator", options->metric,
                   "Speedup as ratio of sums (sum), geometric mean per prompt (geo), or mean of "
                   "speeds: of whole requests, as Spec-Bench and EAGLE publish it (legacy), or of "
                   "decoding alone (legacy-decode)")
      ->check(CLI::IsMember({"sum", "geo", "legacy", "legacy-decode"}))
      ->capture_default_str();
  command
      ->add_option(
          "--interval", options->interval,
          "Of speedups and tau, for new prompts: Student's t (t) or a paired bootstrap over "
          "prompts, seeded from the run's key (bootstrap)")
      ->check(CLI::IsMember({"t", "bootstrap"}))
      ->capture_default_str();
  command
      ->add_option("--scope", options->scope,
                   "What intervals are for: new prompts of the same kinds, which are data sets and "
                   "categories (same-kind; also: population), or new kinds")
      ->check(CLI::IsMember({"same-kind", "new-kinds", "population"}))
      ->capture_default_str();
  command->add_option("--split-by", options->by, "A table per task, or per part of it")
      ->check(CLI::IsMember({"task", "category", "language"}))
      ->capture_default_str();
  command
      ->add_option(
          "--columns-by", options->group_by,
          "Speedup, tau and alpha side by side with mean and deviation: a column per "
          "category, language or both, or with model per RUN (tasks then cut by the others)")
      ->delimiter(',')
      ->allow_extra_args(false)  // what follows is a run
      ->check(CLI::IsMember({"category", "language", "model"}))
      ->type_name("LIST");
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
  command->add_flag("--explain", options->explain, "What every column means, after the tables");
  command
      ->add_option("--columns", options->columns,
                   fmt::format("Columns of the table: {} (default: the usual ones)",
                               fmt::join(reports::column_names(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)  // what follows is a run
      ->check([](const std::string& name) -> std::string {
        const std::vector<std::string> known = reports::column_names();
        if (std::find(known.begin(), known.end(), name) != known.end()) return "";
        return fmt::format("no column '{}'; {}", name, base::suggest(name, known));
      })
      ->type_name("LIST");
  command->add_flag("--wide", options->wide, "Lines of any length, nothing wrapped or left out");
  command->add_flag("--exclude-degenerate", options->exclude_degenerate,
                    "Leave answers that run in a loop out of the speed figures, of both arms");
  command
      ->add_option("--claims", options->claims,
                   "CSV file of published numbers (docs/claims.md) to set beside the measured ones")
      ->type_name("FILE");
  command->add_option("--paper", options->papers, "Only these papers of it")->delimiter(',');
  command
      ->add_option(
          "--as", options->as,
          "The tables of a paper, or one of them, in the paper's form (evalrun list tables)")
      ->type_name("PAPER[:TABLE]");
  command->add_flag("--unequal-budgets", options->unequal_budgets,
                    "With --as: print a table that compares adapters although they were not "
                    "trained alike, their cells marked");
  command->footer(
      "Examples:\n"
      "  evalrun report\n"
      "  evalrun report before --why -o md\n"
      "  evalrun report other.db:run:3 -o json\n"
      "  evalrun report -o report.html\n"
      "  evalrun report --columns-by category -o latex\n"
      "  evalrun report mine@small mine@large --columns-by model\n"
      "  evalrun report quality --quality-against ar_tuned:adapter=space-sft\n"
      "  evalrun report --claims claims.csv --paper falcon,eagle\n"
      "  evalrun report paper-falcon --as falcon:table-1 --claims claims.csv -o latex");
  command->callback([options, command, &context] {
    const bool grouped = !options->group_by.empty() || options->runs.size() > 1;
    if (grouped || !options->as.empty())
      refuse_given(*command, {"--why", "--explain", "--columns", "--pass-k", "--quality-against"},
                   grouped ? "columns side by side" : "a paper's table");
    if (options->as.empty())
      refuse_given(*command, {"--unequal-budgets"}, "a report that is no paper's table (--as)");
    run_report(*options, context.global);
  });
}

}  // namespace evalrun::cli
