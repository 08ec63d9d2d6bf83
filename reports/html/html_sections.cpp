#include "reports/html/html_sections.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"
#include "reports/format.h"
#include "reports/table/arm_tables.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

std::string arm_label(const std::string& label) {
  std::string out;
  for (const std::string& piece : base::split(label, ','))
    out += (out.empty() ? "" : ",<wbr>") + escape_html(piece);
  if (const size_t colon = out.find(':'); colon != out.npos) out.insert(colon + 1, "<wbr>");
  return out;
}

namespace {

// Cells from `words` on are text, the first one is the row's name.
std::string row_of(const std::vector<std::string>& cells, size_t words = static_cast<size_t>(-1)) {
  std::string out = fmt::format("<tr><th scope=\"row\">{}</th>", cells[0]);
  for (size_t c = 1; c < cells.size(); ++c)
    out += fmt::format("<td{}>{}</td>", c < words ? "" : " class=\"words\"", cells[c]);
  return out + "</tr>\n";
}

struct HeaderCell {
  std::string text, definition;  // "" = not in the page's list
  bool words = false;
};
std::string header_of(const std::vector<HeaderCell>& cells) {
  std::string out;
  for (const HeaderCell& c : cells)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", c.words ? " class=\"words\"" : "",
                       c.definition.empty() ? escape_html(c.text)
                                            : fmt::format("<a href=\"#def-{}\">{}</a>",
                                                          c.definition, escape_html(c.text)));
  return out;
}

std::string escaped_or_dash(const std::string& text) {
  return text.empty() ? "-" : escape_html(text);
}

// "above; flagged: alpha_tau; doubt=bonus_counted"
std::string remark(const ClaimedFigure& f) {
  std::vector<std::string> parts = f.claim.tags;
  if (!f.findings.empty())
    parts.insert(parts.begin(), fmt::format("flagged: {}", fmt::join(f.findings, ", ")));
  if (!f.position().empty()) parts.insert(parts.begin(), f.position());
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string figure_row(const ClaimedFigure& f, const ReportRow& row) {
  const std::string printed = f.conversion.empty()
                                  ? escape_html(f.claim.value_text)
                                  : fmt::format("{} <span class=\"range\">({})</span>",
                                                number(f.published, 3), escape_html(f.conversion));
  const std::string interval =
      f.interval ? fmt::format(" <span class=\"range\">[{}, {}]</span>{}",
                               number(f.interval->lo, 3), number(f.interval->hi, 3),
                               row.n_prompts < kIndicativeBelow
                                   ? "<a href=\"#def-indicative\" title=\"indicative: fewer than "
                                     "30 prompts\">*</a>"
                                   : "")
                 : "";
  return row_of(
      {arm_label(row.arm.label) + (row.arm.lossy() ? " (not lossless)" : ""), escape_html(f.metric),
       number(f.measured, 3) + interval, printed,
       f.published != 0 ? number(f.measured / f.published, 2) : "-", escaped_or_dash(remark(f)),
       escaped_or_dash(f.claim.model), escaped_or_dash(f.claim.hardware),
       escaped_or_dash(fmt::format("{}: {}", f.claim.paper, fmt::join(f.places, ", "))),
       escaped_or_dash(f.claim.method + " " + f.claim.config)},
      5);
}

}  // namespace

namespace {

// `metrics`: what the columns behind the first are.
std::string arm_section(const char* name, const Table& t, const std::vector<const char*>& metrics) {
  std::vector<HeaderCell> header = {{t.header[0], ""}};
  for (size_t i = 0; i < metrics.size(); ++i) header.push_back({t.header[i + 1], metrics[i]});
  std::string out = fmt::format(
      "<details class=\"part-table\"><summary>{}</summary>\n<div class=\"scroll\"><table "
      "class=\"comparison\">\n<thead><tr>{}</tr></thead>\n<tbody>\n",
      name, header_of(header));
  for (std::vector<std::string> row : t.rows) {
    for (size_t c = 0; c < row.size(); ++c)
      row[c] = c == 0 ? arm_label(row[c]) : escape_html(row[c]);
    out += row_of(row);
  }
  return out + "</tbody></table></div>\n</details>\n";
}

}  // namespace

std::string memory_section(const Report& report) {
  return arm_section("memory", memory_table(report),
                     {"weight_bytes", "extra_parameter_bytes", "kv_bytes", "peak_bytes"});
}

std::string gpu_section(const Report& report) {
  const Table t = gpu_table(report);
  if (t.rows.empty()) return "";
  return arm_section("GPU", t,
                     {"gpu_draft_ms", "gpu_verify_ms", "gpu_commit_ms", "gpu_host_ms", "gpu_busy",
                      "joules_per_token", "energy_gain"});
}

std::string claims_section(const Claimed* claimed, const Report& report) {
  if (claimed == nullptr) return "";
  const std::string file = claimed->file.substr(claimed->file.find_last_of('/') + 1);
  std::string out = fmt::format(
      "<section id=\"claims\">\n<h2>Claimed against measured</h2>\n<p>Published figures are from "
      "{}. Their models, hardware and programs are not those of this run: a difference is no "
      "verdict on either. Ratio: measured over published. Remark: where the published figure lies "
      "to the measured interval; flagged: it does not fit other figures of its own paper.</p>\n",
      escape_html(file));
  if (claimed->figures.empty())
    out += "<p class=\"note\">It has none for these methods, data sets and metrics.</p>\n";
  if (claimed->other_decoding > 0)
    out += fmt::format(
        "<p class=\"note\">Left out: {} of greedy decoding where the run sampled, or of sampling "
        "where it was greedy.</p>\n",
        claimed->other_decoding);
  for (const std::string& dataset : datasets_of(report)) {
    std::string rows;
    for (const ClaimedFigure& f : claimed->figures)
      if (report.rows[f.row].dataset == dataset) rows += figure_row(f, report.rows[f.row]);
    if (rows.empty()) continue;
    out += fmt::format(
        "<details class=\"part-table\"{}><summary>{}</summary>\n<div class=\"scroll\"><table "
        "class=\"comparison\">\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table></div>\n"
        "</details>\n",
        out.find("<details") == out.npos ? " open" : "", escape_html(dataset),
        header_of({{"method", ""},
                   {"metric", ""},
                   {"measured [95 %]", "interval"},
                   {"published", ""},
                   {"ratio", ""},
                   {"remark", "", true},
                   {"published model", "", true},
                   {"hardware", "", true},
                   {"paper and places", "", true},
                   {"as", "", true}}),
        rows);
  }
  return out + "</section>\n";
}

}  // namespace evalrun::reports
