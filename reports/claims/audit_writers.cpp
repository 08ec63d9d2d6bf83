// The audit as text, Markdown, JSON and CSV.
#include <fmt/format.h>

#include <cmath>

#include "reports/claims/audit.h"
#include "reports/claims/audit_rules.h"
#include "reports/format.h"
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
  Table t;
  t.text_from = 5;
  t.header = {"paper", "rows", "numbers", "checked", "flagged", "comparisons by rule"};
  for (const PaperAudit& p : audit.papers)
    t.rows.push_back({p.paper, std::to_string(p.rows), std::to_string(p.values),
                      std::to_string(p.checked), std::to_string(p.flagged), checked_by(p)});
  return t;
}

Table rule_table(const Audit& audit) {
  Table t;
  t.text_from = 3;
  t.header = {"rule", "comparisons", "findings", "what must hold"};
  for (const AuditRule& rule : audit_rules()) {
    int64_t comparisons = 0, findings = 0;
    for (const PaperAudit& p : audit.papers)
      if (const auto found = p.comparisons.find(rule.name); found != p.comparisons.end())
        comparisons += found->second;
    for (const Finding& f : audit.findings) findings += f.rule == rule.name ? 1 : 0;
    t.rows.push_back(
        {rule.name, std::to_string(comparisons), std::to_string(findings), rule.summary});
  }
  return t;
}

std::string summary(const Audit& audit) {
  int64_t rows = 0, checked = 0, flagged = 0;
  for (const PaperAudit& p : audit.papers)
    rows += p.rows, checked += p.checked, flagged += p.flagged;
  return fmt::format("{}: {} rows, {} of them checked by a rule, {} flagged in {} finding{}.",
                     audit.file, rows, checked, flagged, audit.findings.size(),
                     audit.findings.size() == 1 ? "" : "s");
}

constexpr const char* kReading =
    "A finding says that two published figures cannot both be what they are called; which of them "
    "is wrong, and whether it was printing, counting or copying, it cannot say. No finding says "
    "that a figure is right.";

}  // namespace

std::string to_text(const Audit& audit) {
  std::string out =
      summary(audit) + "\n\n" + paper_table(audit).text() + "\n" + rule_table(audit).text();
  for (const Finding& f : audit.findings) {
    const Claim& c = f.flagged[0];
    out += fmt::format("\n{}: {}, {}, {}\n  {}\n  {}: claimed {}, implied {}\n  {}\n", f.rule,
                       c.paper, c.place, lines_text(f), c.description(), c.metric, c.value_text,
                       implied_text(f), f.text);
  }
  return out + "\n" + kReading + "\n";
}

std::string to_markdown(const Audit& audit) {
  std::string out = escape_markdown(summary(audit)) + "\n\n" + paper_table(audit).markdown() +
                    "\n" + rule_table(audit).markdown();
  if (!audit.findings.empty()) {
    Table t;
    t.text_from = 1;
    t.header = {"finding", "paper", "place", "row", "metric", "claimed", "implied", "why"};
    for (const Finding& f : audit.findings) {
      const Claim& c = f.flagged[0];
      t.rows.push_back({fmt::format("{}, {}", f.rule, lines_text(f)), c.paper, c.place,
                        c.description(), c.metric, c.value_text, implied_text(f), f.text});
    }
    out += "\n" + t.markdown();
  }
  return out + "\n" + kReading + "\n";
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

std::string to_csv(const Audit& audit) {
  std::string out =
      "rule,paper,place,line,model,dataset,category,method,config,metric,claimed,implied,relation,"
      "text\n";
  for (const Finding& f : audit.findings)
    for (const Claim& c : f.flagged) {
      const bool first = &c == &f.flagged[0];
      std::vector<std::string> cells = {f.rule,
                                        c.paper,
                                        c.place,
                                        std::to_string(c.line),
                                        c.model,
                                        c.dataset,
                                        c.category,
                                        c.method,
                                        c.config,
                                        c.metric,
                                        c.value_text,
                                        first && f.implied ? fmt::format("{}", *f.implied) : "",
                                        first && f.implied ? f.relation : "",
                                        f.text};
      for (std::string& cell : cells) cell = escape_csv(cell);
      out += fmt::format("{}\n", fmt::join(cells, ","));
    }
  return out;
}

}  // namespace evalrun::reports
