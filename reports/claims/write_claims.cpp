// "Claimed against measured": the tables behind a report, and the keys in its JSON.
#include <fmt/format.h>

#include <algorithm>

#include "reports/claims/claimed.h"
#include "reports/format.h"
#include "reports/json_values.h"

namespace evalrun::reports {

namespace {

constexpr int kDecimals = 3;

std::string published_text(const ClaimedFigure& f) {
  if (f.conversion.empty()) return f.claim.value_text;
  return fmt::format("{} ({})", number(f.published, kDecimals), f.conversion);
}

// "above; flagged: alpha_tau; doubt=bonus_counted".
std::string remarks(const ClaimedFigure& f) {
  std::vector<std::string> parts;
  if (!f.position().empty()) parts.push_back(f.position());
  if (!f.findings.empty()) parts.push_back(fmt::format("flagged: {}", fmt::join(f.findings, ", ")));
  parts.insert(parts.end(), f.claim.tags.begin(), f.claim.tags.end());
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, "; "));
}

std::string or_dash(const std::string& s) { return s.empty() ? "-" : s; }

Table table_of(const Claimed& claimed, const Report& report, const std::string& dataset) {
  Table t;
  t.text_from = 4;
  t.header = {"method",          "metric",   "measured [95 %]",  "published", "remark",
              "published model", "hardware", "paper and places", "as"};
  for (const ClaimedFigure& f : claimed.figures) {
    const ReportRow& row = report.rows[f.row];
    if (row.dataset != dataset) continue;
    t.rows.push_back(
        {row.arm.label, f.metric, with_interval(f.measured, f.interval, row.n_prompts, kDecimals),
         published_text(f), remarks(f), or_dash(f.claim.model), or_dash(f.claim.hardware),
         fmt::format("{}: {}", f.claim.paper, fmt::join(f.places, ", ")),
         f.claim.config.empty() ? f.claim.method
                                : fmt::format("{} {}", f.claim.method, f.claim.config)});
  }
  return t;
}

std::string render(const Claimed& claimed, const Report& report, bool markdown) {
  const auto text = [&](const std::string& s) { return markdown ? escape_markdown(s) : s; };
  std::string out = "\n";
  std::vector<std::string> datasets;
  for (const ClaimedFigure& f : claimed.figures) {
    const std::string& dataset = report.rows[f.row].dataset;
    if (std::find(datasets.begin(), datasets.end(), dataset) == datasets.end())
      datasets.push_back(dataset);
  }
  for (const std::string& dataset : datasets) {
    const std::string title = fmt::format("{}, claimed against measured", dataset);
    out += markdown ? fmt::format("#### {}\n\n", text(title))
                    : fmt::format("{}\n{:-<{}}\n", title, "", display_width(title));
    const Table t = table_of(claimed, report, dataset);
    out += (markdown ? t.markdown() : t.text()) + "\n";
  }
  const auto note = [&](const std::string& s) { out += (markdown ? "- " : "  ") + text(s) + "\n"; };
  if (claimed.figures.empty())
    out += text(fmt::format("{} has no published figure for these methods, data sets and metrics.",
                            claimed.file)) +
           "\n";
  if (claimed.other_decoding > 0)
    out += text(fmt::format(
               "Left out: {} published figures of greedy decoding where the run sampled, or of "
               "sampling where it was greedy.",
               claimed.other_decoding)) +
           "\n";
  if (claimed.figures.empty()) return out;
  out += "Claimed against measured:" + std::string(markdown ? "\n\n" : "\n");
  note(fmt::format(
      "Published figures are from {}. Their models, hardware and programs are not those of this "
      "run (the columns say which), and methods may be configured otherwise: a difference is no "
      "verdict on either.",
      claimed.file));
  note(
      "remark: where the published figure lies to the measured interval (below, within, above), "
      "given its rounding; nothing where the report has no interval. flagged: it does not fit "
      "other figures of its own paper (evalrun audit). name=value: tags of the file.");
  note(
      "published: in the report's terms, what was printed in brackets: tokens per step hold the "
      "target's own token, shares are of 1, 80 % gain is a speedup of 1.8.");
  return out;
}

}  // namespace

std::string to_text(const Claimed& claimed, const Report& report) {
  return render(claimed, report, false);
}

std::string to_markdown(const Claimed& claimed, const Report& report) {
  return render(claimed, report, true);
}

std::string to_json(const Claimed& claimed, const Report& report) {
  Json rows = Json::parse(to_json(report));
  for (Json& row : rows) row["claims"] = Json::array();
  for (const ClaimedFigure& f : claimed.figures) {
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
