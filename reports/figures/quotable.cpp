#include "reports/figures/quotable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.h"

namespace evalrun::reports {

namespace {

bool is_too_noisy(const ReportRow& r) {
  return r.arm.role == "aa" && r.speed.speedup && std::abs(*r.speed.speedup - 1) > kMostNoise;
}

}  // namespace

std::vector<std::string> too_noisy(const Report& report, const std::string& dataset) {
  std::vector<std::string> reasons;
  for (const ReportRow& r : report.rows)
    if (r.dataset == dataset && is_too_noisy(r))
      reasons.push_back(fmt::format("{}{} against itself gives {}",
                                    is_plain_label(r.reference) ? "plain decoding" : r.reference,
                                    r.arm.batch > 1 ? fmt::format(" at batch {}", r.arm.batch) : "",
                                    number(r.speed.speedup, 2)));
  return reasons;
}

std::vector<std::string> not_quotable(const Report& report, const std::string& dataset) {
  std::vector<std::string> reasons = too_noisy(report, dataset);
  for (const auto& more : {report.conditions.throttling, report.conditions.interference})
    reasons.insert(reasons.end(), more.begin(), more.end());
  return reasons;
}

std::optional<bool> quotable(const Report& report, const ReportRow& row) {
  const bool noisy =
      std::any_of(report.rows.begin(), report.rows.end(), [&](const ReportRow& other) {
        return other.dataset == row.dataset && other.arm.batch == row.arm.batch &&
               is_too_noisy(other);
      });
  if (noisy || !report.conditions.quotable()) return false;
  return report.conditions.generations > 0 ? std::optional(true) : std::nullopt;
}

std::string not_quotable_text(const Report& report, const std::string& dataset) {
  const std::vector<std::string> reasons = not_quotable(report, dataset);
  if (reasons.empty()) return "";
  const bool clock_alone = reasons.size() == report.conditions.throttling.size();
  return fmt::format("Not quotable: {}, so no speedup here can be trusted. Measure again {}.",
                     fmt::join(reasons, "; "),
                     clock_alone ? "at a steady clock" : "on a quiet machine");
}

}  // namespace evalrun::reports
