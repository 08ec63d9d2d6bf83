// The audit as a Document and as JSON.
#include <fmt/format.h>

#include <cmath>

#include "engine/base/text.h"
#include "reports/claims/audit.h"
#include "reports/claims/audit_rules.h"
#include "reports/json_values.h"

namespace evalrun::reports {

namespace {

std::string implied_text(const Finding& f) {
  if (!f.implied) return "-";
  std::string value = printed_like(f.flagged[0], *f.implied);
  // A figure printed without decimals may be far from what it should be by less than one.
  if (value.find('.') == std::string::npos && *f.implied != std::floor(*f.implied))
    value = fmt::format("{:.2f}", *f.implied);
  return f.relation == std::string("=") ? value : fmt::format("{} {}", f.relation, value);
}

// "line 599", "lines 183, 184".
std::string lines_text(const Finding& f) {
  std::vector<size_t> lines;
  for (const Claim& c : f.flagged) lines.push_back(c.line);
  return fmt::format("line{} {}", lines.size() > 1 ? "s" : "", fmt::join(lines, ", "));
}

std::string checked_by(const PaperAudit& paper) {
  std::vector<std::string> rules;
  for (const AuditRule& rule : audit_rules())
    if (const auto found = paper.comparisons.find(rule.name); found != paper.comparisons.end())
      rules.push_back(fmt::format("{} {}", rule.name, found->second));
  return rules.empty() ? "-" : fmt::format("{}", fmt::join(rules, ", "));
}

Table paper_table(const Audit& audit) {
  Table t{.columns = {{.name = "paper", .words = true},
                      {.name = "rows"},
                      {.name = "numbers"},
                      {.name = "checked"},
                      {.name = "flagged"},
                      {.name = "comparisons by rule", .words = true, .room = Room::kPage}}};
  for (const PaperAudit& p : audit.papers)
    t.rows.push_back({p.paper, std::to_string(p.rows), std::to_string(p.values),
                      std::to_string(p.checked), std::to_string(p.flagged), checked_by(p)});
  t.caption = "Published rows, and how many of them a rule can check.";
  return t;
}

Table rule_table(const Audit& audit) {
  Table t{.columns = {{.name = "rule", .words = true},
                      {.name = "comparisons"},
                      {.name = "findings"},
                      {.name = "what must hold", .words = true}}};
  for (const AuditRule& rule : audit_rules()) {
    int64_t comparisons = 0, findings = 0;
    for (const PaperAudit& p : audit.papers)
      if (const auto found = p.comparisons.find(rule.name); found != p.comparisons.end())
        comparisons += found->second;
    for (const Finding& f : audit.findings) findings += f.rule == rule.name ? 1 : 0;
    t.rows.push_back(
        {rule.name, std::to_string(comparisons), std::to_string(findings), rule.summary});
  }
  t.caption = "The rules, and what they found.";
  return t;
}

Table finding_table(const Audit& audit) {
  Table t{.columns = {{.name = "finding", .words = true},
                      {.name = "paper", .words = true},
                      {.name = "place", .words = true},
                      {.name = "row", .words = true},
                      {.name = "metric", .words = true},
                      {.name = "claimed"},
                      {.name = "implied"},
                      {.name = "why", .words = true}}};
  for (const Finding& f : audit.findings) {
    const Claim& c = f.flagged[0];
    t.rows.push_back({fmt::format("{}, {}", f.rule, lines_text(f)), c.paper, c.place,
                      c.description(), c.metric, c.value_text, implied_text(f), f.text});
  }
  t.caption = "Published figures that do not fit each other.";
  return t;
}

// A line for every number that a finding flags; what is implied stands with the first of them.
Table finding_records(const Audit& audit) {
  Table t;
  for (const char* name : {"rule", "paper", "place", "line", "model", "dataset", "category",
                           "method", "config", "metric", "claimed", "implied", "relation", "text"})
    t.columns.push_back({.name = name, .words = true});
  for (const Finding& f : audit.findings)
    for (const Claim& c : f.flagged) {
      const bool first = &c == &f.flagged[0] && f.implied;
      t.rows.push_back({f.rule, c.paper, c.place, std::to_string(c.line), c.model, c.dataset,
                        c.category, c.method, c.config, c.metric, c.value_text,
                        first ? fmt::format("{}", *f.implied) : "", first ? f.relation : "",
                        f.text});
    }
  return t;
}

std::string summary(const Audit& audit) {
  int64_t rows = 0, checked = 0, flagged = 0;
  for (const PaperAudit& p : audit.papers)
    rows += p.rows, checked += p.checked, flagged += p.flagged;
  return fmt::format("{}: {} rows, {} of them checked by a rule, {} flagged in {}.", audit.file,
                     rows, checked, flagged,
                     base::plural(static_cast<int64_t>(audit.findings.size()), "finding"));
}

constexpr const char* kReading =
    "A finding says that two published figures cannot both be what they are called; which of them "
    "is wrong, and whether it was printing, counting or copying, it cannot say. No finding says "
    "that a figure is right.";

}  // namespace

Document document(const Audit& audit) {
  Document d{.name = "audit"};
  d.paragraph(summary(audit));
  d.table(paper_table(audit));
  d.table(rule_table(audit));
  if (!audit.findings.empty()) d.table(finding_table(audit));
  d.paragraph(kReading);
  d.data = finding_records(audit);
  return d;
}

std::string to_json(const Audit& audit) {
  Json papers = Json::array(), rules = Json::array(), findings = Json::array();
  for (const PaperAudit& p : audit.papers)
    papers.push_back({{"paper", p.paper},
                      {"rows", p.rows},
                      {"values", p.values},
                      {"checked", p.checked},
                      {"flagged", p.flagged},
                      {"comparisons", p.comparisons}});
  for (const AuditRule& rule : audit_rules())
    rules.push_back({{"rule", rule.name}, {"summary", rule.summary}});
  for (const Finding& f : audit.findings) {
    const Claim& c = f.flagged[0];
    Json lines = Json::array();
    for (const Claim& flagged : f.flagged) lines.push_back(flagged.line);
    findings.push_back({{"rule", f.rule},
                        {"paper", c.paper},
                        {"place", c.place},
                        {"lines", lines},
                        {"model", c.model},
                        {"dataset", c.dataset},
                        {"category", c.category},
                        {"method", c.method},
                        {"config", c.config},
                        {"metric", c.metric},
                        {"claimed", *c.value},
                        {"implied", f.implied ? Json(*f.implied) : Json(nullptr)},
                        {"relation", f.relation},
                        {"against", f.against},
                        {"text", f.text}});
  }
  const Json all = {
      {"file", audit.file}, {"papers", papers}, {"rules", rules}, {"findings", findings}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
