// evalrun audit: do the numbers of a published table agree with each other?
#include <memory>

#include "reports/claims/audit.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

struct AuditArguments {
  std::string file;
  ReportOutput output;
  std::vector<std::string> papers;
  bool fail_on_findings = false;
};

void run_audit(const AuditArguments& options, Context& context) {
  const reports::Audit audit = reports::audit_claims(
      reports::select_papers(reports::read_claims(options.file), options.papers));
  ReportOutput output = options.output;
  const reports::Format format = output.resolve(context.global);
  output.deliver(reports::rendered(audit, format, output.layout(context.global)));
  if (options.fail_on_findings && !audit.findings.empty())
    context.exit_code = static_cast<int>(base::ExitCode::kCorrectness);
}

}  // namespace

void add_audit_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("audit", "Do published numbers agree with each other?");
  auto options = std::make_shared<AuditArguments>();
  command->add_option("file", options->file, "CSV file of published numbers: docs/claims.md")
      ->required();
  command->add_option("--paper", options->papers, "Only these papers (default: all)")
      ->delimiter(',');
  using reports::Format;
  options->output.add_format(
      *command, {Format::kText, Format::kMarkdown, Format::kCsv, Format::kJson, Format::kLatex});
  command->add_flag("--fail-on-findings", options->fail_on_findings,
                    "End with exit code 5 when anything is flagged");
  command->footer(
      "The rules are identities of the metrics (speedup and tokens per step, tau and alpha, ...): "
      "docs/claims.md.\n\n"
      "Examples:\n"
      "  evalrun audit claims.csv\n"
      "  evalrun audit claims.csv --paper falcon -o md\n"
      "  evalrun audit our-table.csv --fail-on-findings    before it is printed");
  command->callback([options, &context] { run_audit(*options, context); });
}

}  // namespace evalrun::cli
