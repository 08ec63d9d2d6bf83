#include "reports/table/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/text.h"
#include "reports/figures/quotable.h"
#include "reports/format.h"

namespace evalrun::reports {
namespace {

using Rows = std::vector<const ReportRow*>;

constexpr size_t kNamed = 6;  // more labels are counted instead

std::string names(const Rows& rows) {
  std::vector<std::string> labels;
  for (size_t i = 0; i < std::min(kNamed, rows.size()); ++i) labels.push_back(rows[i]->arm.label);
  std::string text = fmt::format("{}", fmt::join(labels, ", "));
  if (rows.size() > kNamed) text += fmt::format(" and {} more", rows.size() - kNamed);
  return text;
}

bool plain(const ReportRow& r) { return r.arm.role == "baseline"; }

std::string figures(const ReportRow& r, Estimator estimator) {
  std::string text = fmt::format("{}, {}x", r.arm.label, number(r.speed.speedup, 2));
  if (r.speed.interval) text += " " + bracket(*r.speed.interval, 2);
  if (estimator == Estimator::kLegacy) return text + " for whole requests";
  text += " in decoding";
  if (!r.speed.request) return text;
  text += fmt::format(", {}x", number(r.speed.request, 2));
  if (r.speed.request_interval) text += " " + bracket(*r.speed.request_interval, 2);
  return text + " for whole requests";
}

// Slower than plain decoding by the whole interval.
bool slower(const ReportRow& r) { return r.speed.interval && r.speed.interval->hi < 1; }

// Of arms that were ranked with each other.
std::string fastest_text(const Report& report, const Rows& ranked) {
  const auto fastest =
      std::find_if(ranked.begin(), ranked.end(), [](const auto* r) { return r->ranking->fastest; });
  if (fastest == ranked.end()) return {};
  const ReportRow& best = **fastest;
  Rows equals, slow;  // but for the best and plain decoding
  bool plain_may_be = false;
  for (const ReportRow* r : ranked) {
    if (plain(*r))
      plain_may_be = r->ranking->may_be_fastest;
    else if (r != &best && r->ranking->may_be_fastest)
      equals.push_back(r);
    else if (r != &best && slower(*r))
      slow.push_back(r);
  }
  std::stable_sort(equals.begin(), equals.end(), [](const ReportRow* a, const ReportRow* b) {
    return a->speed.speedup.value_or(0) > b->speed.speedup.value_or(0);
  });
  std::vector<std::string> lines;
  if (plain(best)) {
    lines.push_back("No lossless method is faster than plain decoding here.");
    if (!equals.empty())
      lines.push_back(fmt::format("Cannot be told apart from it: {}.", names(equals)));
  } else if (plain_may_be) {
    lines.push_back(fmt::format(
        "No lossless method is shown to be faster than plain decoding here. Largest estimate: {}.",
        figures(best, report.estimator)));
    if (!equals.empty())
      lines.push_back(fmt::format("Cannot be told apart from it either: {}.", names(equals)));
  } else {
    lines.push_back(fmt::format("Fastest lossless here: {}.", figures(best, report.estimator)));
    if (!equals.empty())
      lines.push_back(fmt::format("Cannot be told apart from it: {}.", names(equals)));
  }
  if (!slow.empty()) lines.push_back(fmt::format("Slower than plain decoding: {}.", names(slow)));
  if (best.ranking->n < kIndicativeBelow)
    lines.push_back(
        fmt::format("From {}: indicative only.", base::plural(best.ranking->n, "prompt")));
  else if (best.ranking->n_eff < kIndicativeBelow)
    lines.push_back(fmt::format("From {} prompts that weigh as {}: indicative only.",
                                best.ranking->n, number(best.ranking->n_eff, 1)));
  return fmt::format("{}", fmt::join(lines, " "));
}

}  // namespace

std::string answer(const Report& report, const std::string& dataset) {
  std::map<int64_t, Rows> ranked;  // by batch
  for (const ReportRow& r : report.rows)
    if (r.dataset == dataset && r.ranking) ranked[r.arm.batch].push_back(&r);
  const std::string warning = not_quotable_text(report, dataset);
  std::string fastest;
  for (const auto& [batch, rows] : ranked) {
    const std::string text = fastest_text(report, rows);
    if (text.empty()) continue;
    fastest += fastest.empty() ? "" : " ";
    fastest += ranked.size() > 1 ? fmt::format("Batch {}: {}", batch, text) : text;
  }
  return warning + (warning.empty() || fastest.empty() ? "" : " ") + fastest;
}

}  // namespace evalrun::reports
