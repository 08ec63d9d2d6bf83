// "Claimed against measured": the tables after a report, and the keys in its JSON.
#include <fmt/format.h>

#include <algorithm>

#include "reports/claims/published_vs_measured.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

constexpr int kDecimals = 3;

std::string published_text(const PublishedFigure& f) {
  if (f.conversion.empty()) return f.claim.value_text;
  return fmt::format("{} ({})", number(f.published, kDecimals), f.conversion);
}

// "above; flagged: alpha_tau; doubt=bonus_counted".
std::string remarks(const PublishedFigure& f) {
  std::vector<std::string> parts;
  if (!f.position().empty()) parts.push_back(f.position());
  if (!f.findings.empty()) parts.push_back(fmt::format("flagged: {}", fmt::join(f.findings, ", ")));
  parts.insert(parts.end(), f.claim.tags.begin(), f.claim.tags.end());
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, "; "));
}

std::string or_dash(const std::string& s) { return s.empty() ? "-" : s; }

}  // namespace

Table claims_table(const PublishedVsMeasured& claimed, const Report& report,
                   const std::string& dataset) {
  Table t{.columns = {{.name = "method", .words = true},
                      {.name = "metric", .words = true},
                      {.name = "measured [95 %]", .metric = "interval"},
                      {.name = "published"},
                      {.name = "ratio"},
                      {.name = "remark", .words = true},
                      {.name = "published model", .words = true, .room = Room::kPage},
                      {.name = "hardware", .words = true, .room = Room::kPage},
                      {.name = "paper and places", .words = true},
                      {.name = "as", .words = true, .room = Room::kPage}}};
  for (const PublishedFigure& f : claimed.figures) {
    const ReportRow& row = report.rows[f.row];
    if (row.dataset != dataset) continue;
    t.rows.push_back(
        {row.arm.label + (row.arm.lossy() ? " (not lossless)" : ""), f.metric,
         figure_cell(f.measured, f.interval, row.counts.prompts, kDecimals), published_text(f),
         f.published != 0 ? number(f.measured / f.published, 2) : "-", remarks(f),
         or_dash(f.claim.model), or_dash(f.claim.hardware),
         fmt::format("{}: {}", f.claim.paper, fmt::join(f.places, ", ")),
         f.claim.config.empty() ? f.claim.method
                                : fmt::format("{} {}", f.claim.method, f.claim.config)});
  }
  t.caption = fmt::format("Published and measured figures on {}.", dataset);
  t.label = dataset + "-claims";
  return t;
}

std::vector<std::string> claims_notes(const PublishedVsMeasured& claimed) {
  if (claimed.figures.empty()) return {};
  return {fmt::format(
              "Published figures are from {}. Their models, hardware and programs are not those of "
              "this run (the columns say which), and methods may be configured otherwise: a "
              "difference is no verdict on either.",
              claimed.file.substr(claimed.file.find_last_of('/') + 1)),
          "ratio: measured over published. remark: where the published figure lies to the measured "
          "interval (below, within, above), given its rounding; nothing where the report has no "
          "interval. flagged: it does not fit other figures of its own paper (evalrun audit). "
          "name=value: tags of the file.",
          "published: in the report's terms, what was printed in brackets: tokens per step hold "
          "the target's own token, shares are of 1, 80 % gain is a speedup of 1.8."};
}

void add_claims_intro(const PublishedVsMeasured& claimed, Document& d) {
  if (claimed.figures.empty())
    d.paragraph(fmt::format("{} has no published figure for these methods, data sets and metrics.",
                            claimed.file));
  if (claimed.other_decoding > 0)
    d.paragraph(fmt::format(
        "Left out: {} published figures of greedy decoding where the run sampled, or of sampling "
        "where it was greedy.",
        claimed.other_decoding));
}

void add_claims(const PublishedVsMeasured& claimed, const Report& report, Document& d) {
  for (const std::string& dataset : datasets_of(report))
    if (Table t = claims_table(claimed, report, dataset); !t.rows.empty()) {
      d.heading(fmt::format("{}, claimed against measured", dataset));
      d.table(std::move(t));
    }
  add_claims_intro(claimed, d);
  const std::vector<std::string> notes = claims_notes(claimed);
  if (!notes.empty()) d.paragraph("Claimed against measured:");
  for (const std::string& note : notes) d.note(note);
}

std::string to_json(const PublishedVsMeasured& claimed, const Report& report) {
  Json rows = Json::parse(to_json(report));
  for (Json& row : rows) row["claims"] = Json::array();
  for (const PublishedFigure& f : claimed.figures) {
    const std::string position = f.position();
    rows[f.row]["claims"].push_back({
        {"metric", f.metric},
        {"measured", f.measured},
        {"measured_lo", json_lo(f.interval)},
        {"measured_hi", json_hi(f.interval)},
        {"published", f.published},
        {"published_rounding", f.rounding},
        {"printed", f.claim.value_text},
        {"printed_metric", f.claim.metric},
        {"position", position.empty() ? Json(nullptr) : Json(position)},
        {"findings", f.findings},
        {"tags", f.claim.tags},
        {"paper", f.claim.paper},
        {"places", f.places},
        {"line", f.claim.line},
        {"model", f.claim.model},
        {"hardware", f.claim.hardware},
        {"method", f.claim.method},
        {"config", f.claim.config},
        {"category", f.claim.category},
    });
  }
  return rows.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
