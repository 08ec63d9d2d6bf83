#include "reports/html/html_sections.h"

#include <fmt/format.h>

#include "reports/document/escape.h"
#include "reports/table/arm_tables.h"
#include "reports/table/report_document.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

std::string folded(const std::string& title, const Document& content, bool open) {
  return fmt::format("<details class=\"part-table\"{}><summary>{}</summary>\n{}</details>\n",
                     open ? " open" : "", escape_html(title), render(content, Format::kHtml));
}

std::string dataset_sections(const Report& report) {
  // The pooled rows first; the data sets after them on demand.
  const std::vector<std::string> datasets = datasets_of(report);
  Document pooled;
  add_dataset(report, datasets.back(), true, pooled);
  std::string out = render(pooled, Format::kHtml);
  for (size_t i = 0; i + 1 < datasets.size(); ++i) {
    Document part;
    add_dataset(report, datasets[i], true, part);
    out += folded(datasets[i], part);
  }
  out += folded("memory", {.blocks = {memory_table(report)}});
  if (Table t = gpu_table(report); !t.rows.empty()) out += folded("GPU", {.blocks = {t}});
  if (Table t = energy_table(report); !t.rows.empty()) out += folded("energy", {.blocks = {t}});
  return out;
}

std::string claims_section(const PublishedVsMeasured* claimed, const Report& report) {
  if (claimed == nullptr) return "";
  Document intro;
  add_claims_intro(*claimed, intro);
  for (const std::string& note : claims_notes(*claimed)) intro.note(note);
  std::string tables;
  for (const std::string& dataset : datasets_of(report))
    if (Table t = claims_table(*claimed, report, dataset); !t.rows.empty())
      tables += folded(dataset, {.blocks = {t}}, tables.empty());
  return fmt::format("<section id=\"claims\">\n<h2>Claimed against measured</h2>\n{}{}</section>\n",
                     render(intro, Format::kHtml), tables);
}

}  // namespace evalrun::reports
