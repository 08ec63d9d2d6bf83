#include "reports/claims/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/claims/audit_rules.h"

namespace evalrun::reports {

namespace {

using Check = void (*)(const Claims&, const ClaimCells&, AuditLog&);
struct RuleEntry {
  AuditRule info;
  Check check;
};

const std::vector<RuleEntry>& rules() {
  static const std::vector<RuleEntry> entries = {
      {{"alpha_tau", "alpha_share = A / (A + 1) with A accepted tokens per step"}, check_alpha_tau},
      {{"tau_conventions", "tau_with_bonus = decoding_efficiency = tau_without_bonus + 1"},
       check_tau_conventions},
      {{"speedup_tau", "speedup <= tokens per step, a step being no cheaper than a plain one"},
       check_speedup_tau},
      {{"step_overhead", "speedup = tokens per step / step_overhead"}, check_step_overhead},
      {{"throughput", "speedup = throughput / that of plain decoding in the same table"},
       check_throughput},
      {{"bounds", "0 <= A <= what the configuration can draft, speedup <= that + 1"}, check_bounds},
      {{"overall_mean", "overall is near the mean of the categories and between them"},
       check_overall_mean},
      {{"same_numbers", "two models do not agree in tau and in speedup to the last digit"},
       check_same_numbers},
      {{"prose_table", "ranges and comparisons in prose follow from a table of the paper"},
       check_prose_table},
      {{"sum", "a stated total is the sum of the table's rows"}, check_sum},
  };
  return entries;
}

}  // namespace

const std::vector<AuditRule>& audit_rules() {
  static const std::vector<AuditRule> infos = [] {
    std::vector<AuditRule> list;
    for (const RuleEntry& rule : rules()) list.push_back(rule.info);
    return list;
  }();
  return infos;
}

Audit audit_claims(const Claims& claims) {
  const ClaimCells cells(claims);
  AuditLog log;
  for (const RuleEntry& rule : rules()) rule.check(claims, cells, log);
  Audit audit;
  audit.file = claims.file;
  std::set<size_t> flagged;
  for (const Finding& finding : log.findings)
    for (const Claim& claim : finding.flagged) flagged.insert(claim.line);
  audit.findings = std::move(log.findings);
  for (const std::string& name : claims.papers()) {
    PaperAudit paper;
    paper.paper = name;
    paper.comparisons = log.comparisons[name];
    for (const Claim& claim : claims.rows) {
      if (claim.paper != name) continue;
      ++paper.rows;
      paper.values += claim.value.has_value() ? 1 : 0;
      paper.checked += log.checked.contains(claim.line) ? 1 : 0;
      paper.flagged += flagged.contains(claim.line) ? 1 : 0;
    }
    audit.papers.push_back(std::move(paper));
  }
  return audit;
}

}  // namespace evalrun::reports
