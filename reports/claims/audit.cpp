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

std::string cell_key(const Claim& c, std::string_view metric) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", c.paper, c.model, c.dataset, c.category,
                     c.method, c.config, c.hardware, metric);
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

bool is_speedup(const Claim& claim) {
  return claim.metric == "speedup" || claim.metric == "throughput_ratio" ||
         claim.metric == "throughput_gain";
}

Figure figure(const Claim& claim) { return {*claim.value, claim.rounding()}; }

Figure speedup_factor(const Claim& claim) {
  if (claim.metric != "throughput_gain") return figure(claim);
  return {1 + *claim.value / 100, claim.rounding() / 100};
}

Figure ratio(const Figure& a, const Figure& b) {
  const double value = a.value / b.value;
  return {value, (a.rounding + std::abs(value) * b.rounding) / std::abs(b.value)};
}

std::string printed_like(const Claim& claim, double value) {
  const size_t point = claim.value_text.find('.');
  const size_t decimals = point == std::string::npos ? 0 : claim.value_text.size() - point - 1;
  return fmt::format("{:.{}f}", value, std::min<size_t>(decimals, 6));
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool in_table(const Claim& c) {
  return c.place.starts_with("Table ") && c.place.find(' ', 6) == std::string::npos;
}

const std::vector<std::string>& parts_of(const std::string& dataset) {
  static const std::map<std::string, std::vector<std::string>> parts = {
      {"mt_bench",
       {"coding", "extraction", "humanities", "math", "reasoning", "roleplay", "stem", "writing"}},
      {"spec_bench", {"mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag"}}};
  static const std::vector<std::string> none;
  const auto found = parts.find(dataset);
  return found == parts.end() ? none : found->second;
}

ClaimCells::ClaimCells(const Claims& claims) {
  for (const Claim& claim : claims.rows)
    if (claim.value && claim.measured()) cells_[cell_key(claim, claim.metric)].push_back(&claim);
}

const Claim* ClaimCells::partner(const Claim& claim, std::string_view metric) const {
  if (!claim.measured()) return nullptr;
  const auto found = cells_.find(cell_key(claim, metric));
  if (found == cells_.end()) return nullptr;
  const std::vector<const Claim*>& cell = found->second;
  for (const Claim* other : cell)
    if (other->place == claim.place) return other;  // the key allows one per place
  const bool agree = std::all_of(cell.begin(), cell.end(), [&](const Claim* other) {
    return other->value_text == cell.front()->value_text;
  });
  return agree ? cell.front() : nullptr;
}

ClaimCells::Tokens ClaimCells::tokens_per_step(const Claim& claim) const {
  for (const char* metric : {"tau_with_bonus", "decoding_efficiency"})
    if (const Claim* found = partner(claim, metric)) return {found, 0};
  return {partner(claim, "tau_without_bonus"), 1};
}

void AuditLog::compared(const char* rule, const Claim& claim,
                        std::initializer_list<const Claim*> others) {
  ++comparisons[claim.paper][rule];
  checked.insert(claim.line);
  for (const Claim* other : others) checked.insert(other->line);
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
