// Rules for rows of a table against each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/claims/audit_rules.h"

namespace evalrun::reports {

namespace {

constexpr double kOverallSlack = 0.06;  // relative: categories may be weighted by their tokens

}  // namespace

void check_overall_mean(const Claims& claims, const ClaimCells&, AuditLog& log) {
  constexpr const char* kRule = "overall_mean";
  for (const Claim& overall : claims.rows) {
    if (!overall.value || !overall.measured() || overall.category != "overall") continue;
    if (!is_speedup(overall) && !overall.metric.starts_with("tau_")) continue;
    const std::vector<std::string>& names = parts_of(overall.dataset);
    std::vector<const Claim*> parts;
    for (const Claim& c : claims.rows)
      if (c.value && c.paper == overall.paper && c.place == overall.place &&
          c.model == overall.model && c.dataset == overall.dataset && c.method == overall.method &&
          c.config == overall.config && c.metric == overall.metric &&
          c.hardware == overall.hardware && contains(names, c.category))
        parts.push_back(&c);
    if (names.empty() || parts.size() != names.size()) continue;
    log.compared(kRule, overall, {});
    double sum = 0, low = INFINITY, high = -INFINITY;
    std::vector<size_t> lines;
    for (const Claim* part : parts) {
      log.checked.insert(part->line);
      lines.push_back(part->line);
      sum += *part->value;
      low = std::min(low, *part->value - part->rounding());
      high = std::max(high, *part->value + part->rounding());
    }
    const double mean = sum / static_cast<double>(parts.size());
    const bool near = std::abs(*overall.value - mean) <=
                      kOverallSlack * std::abs(mean) + overall.rounding() + kTiny;
    if (near && *overall.value >= low - kTiny && *overall.value <= high + kTiny) continue;
    log.flag({kRule,
              {overall},
              lines,
              mean,
              "=",
              fmt::format("the mean of the {} categories is {:.2f}, {} is printed; a weighting by "
                          "tokens would have to favour single categories far more.",
                          parts.size(), mean, overall.value_text)});
  }
}

// Two models with the same tau may be chance, with the same speedup as well a slip of copying.
void check_same_numbers(const Claims& claims, const ClaimCells& cells, AuditLog& log) {
  constexpr const char* kRule = "same_numbers";
  constexpr std::ptrdiff_t kDigits = 3;  // of either figure; fewer agree by chance
  const auto digits = [](const Claim& c) {
    return std::count_if(c.value_text.begin(), c.value_text.end(),
                         [](char x) { return x >= '0' && x <= '9'; });
  };
  std::map<std::string, std::vector<const Claim*>> groups;
  std::vector<std::string> order;
  for (const Claim& tau : claims.rows) {
    if (!tau.value || !tau.metric.starts_with("tau_with") || digits(tau) < kDigits) continue;
    const Claim* speed = cells.partner(tau, "speedup");
    if (speed == nullptr || speed->place != tau.place || digits(*speed) < kDigits) continue;
    log.compared(kRule, tau, {speed});
    const auto sd = [](const Claim& c) { return c.sd ? fmt::format("{}", *c.sd) : ""; };
    const std::string key = fmt::format(
        "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", tau.paper, tau.place, tau.dataset, tau.category,
        tau.method, tau.config, tau.value_text, sd(tau), speed->value_text, sd(*speed));
    std::vector<const Claim*>& group = groups[key];
    if (group.empty()) order.push_back(key);
    group.push_back(&tau);
    group.push_back(speed);
  }
  for (const std::string& key : order) {
    const std::vector<const Claim*>& group = groups[key];
    std::vector<std::string> models;
    for (const Claim* c : group)
      if (!contains(models, c->model)) models.push_back(c->model);
    if (models.size() < 2) continue;
    Finding finding{kRule, {}, {}, std::nullopt, "=", ""};
    for (const Claim* c : group) finding.flagged.push_back(*c);
    finding.text = fmt::format(
        "{} agree in {} {} and speedup {} to the last digit: one of them seems copied.",
        fmt::join(models, " and "), group[0]->metric, group[0]->value_text, group[1]->value_text);
    log.flag(std::move(finding));
  }
}

// Counts of training samples: one stated outside of tables against the table of the data sets, of
// which a paper may say that only a part was used.
void check_sum(const Claims& claims, const ClaimCells& cells, AuditLog& log) {
  constexpr const char* kRule = "sum";
  constexpr size_t kLeast = 3;  // rows that make a table of parts
  for (const Claim& total : claims.rows) {
    if (!total.value || !total.measured() || total.metric != "train_samples" || in_table(total))
      continue;
    std::map<std::string, std::vector<const Claim*>> tables;
    for (const Claim& c : claims.rows)
      if (c.value && c.measured() && in_table(c) && c.paper == total.paper &&
          c.metric == total.metric && c.method == total.method && c.config == total.config &&
          c.dataset != total.dataset)
        tables[c.place].push_back(&c);
    for (const auto& [place, parts] : tables) {
      if (parts.size() < kLeast) continue;
      double sum = 0;
      std::vector<size_t> lines;
      for (const Claim* part : parts) {
        const Claim* used = cells.partner(*part, "train_samples_used");
        sum += used != nullptr ? *used->value : *part->value;
        lines.push_back(part->line);
      }
      log.compared(kRule, total, {});
      for (const size_t line : lines) log.checked.insert(line);
      // Zeros at the end may be rounding: 150000 may stand for 147979.
      double unit = 1;
      while (*total.value != 0 && std::fmod(*total.value, 10 * unit) == 0) unit *= 10;
      if (std::abs(sum - *total.value) <= unit / 2) continue;
      log.flag({kRule,
                {total},
                lines,
                sum,
                "=",
                fmt::format("the {} rows of {} add up to {:.0f}, {} is printed.", parts.size(),
                            place, sum, total.value_text)});
    }
  }
}

}  // namespace evalrun::reports
