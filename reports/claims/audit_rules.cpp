#include "reports/claims/audit_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace evalrun::reports {

namespace {

std::string cell_key(const Claim& c, std::string_view metric) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", c.paper, c.model, c.dataset, c.category,
                     c.method, c.config, c.hardware, metric);
}

}  // namespace

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

}  // namespace evalrun::reports
