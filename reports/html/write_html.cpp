// The report as one HTML page. Tables and texts are written here, so they can be read without
// scripts; reports/html holds the template, the style and the scripts that draw the charts.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/document/escape.h"
#include "reports/figures/report.h"
#include "reports/html/assets.h"
#include "reports/html/html_data.h"
#include "reports/html/html_sections.h"
#include "reports/table/machine_tables.h"
#include "reports/table/metric_glossary.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

std::string_view asset(std::string_view name) {
  for (const base::EmbeddedFile& file : html_assets())
    if (file.name == name) return file.text;
  EVALRUN_CHECK(false, "no asset {}", name);
  return {};
}

// 'sha256-...' of a Content-Security-Policy: the browser runs the scripts we put there, no others.
std::string policy_hash(std::string_view text) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = base::sha256_hex(text);
  std::string out;
  for (size_t at = 0; at < hex.size(); at += 6) {  // three bytes, four digits
    const std::string piece = hex.substr(at, 6);
    const size_t n = piece.size() / 2;
    const auto bits = std::stoul(piece, nullptr, 16) << (24 - 8 * n);
    for (size_t i = 0; i < 4; ++i) out += i <= n ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return "'sha256-" + out + "'";
}

// `@name@` of the template become values, in one pass: what is put in is not looked at again.
std::string fill(std::string_view page, const std::map<std::string_view, std::string>& values) {
  std::string out;
  for (size_t at = 0; at < page.size();) {
    const size_t begin = page.find('@', at);
    const size_t end = begin == page.npos ? page.npos : page.find('@', begin + 1);
    if (end == page.npos) return out.append(page.substr(at));
    const auto value = values.find(page.substr(begin + 1, end - begin - 1));
    if (value == values.end()) {  // an "@" of the text, as in "@media"
      out.append(page.substr(at, end - at));
      at = end;
      continue;
    }
    out.append(page.substr(at, begin - at)).append(value->second);
    at = end + 1;
  }
  return out;
}

class HtmlRenderer {
 public:
  HtmlRenderer(const Report& report, const results::ResultStore& store,
               const PublishedVsMeasured* claimed)
      : report_(report), store_(store), claimed_(claimed) {}

  std::string render() {
    const std::string_view chart = chart_library().front().text, style = asset("style.css");
    std::string script;  // one, in this order
    for (const char* part : {"plot.js", "figures.js", "batches.js", "detail.js", "page.js"})
      script += asset(part);
    const std::string policy = fmt::format(
        "default-src 'none'; style-src {}; script-src {} {}; img-src data:; base-uri 'none'; "
        "form-action 'none'",
        policy_hash(style), policy_hash(chart), policy_hash(script));
    return fill(asset("template.html"),
                {{"csp", policy},
                 {"title", escape_html(title())},
                 {"style", std::string(style)},
                 {"summary", summary()},
                 {"tables", dataset_sections(report_)},
                 {"notes", run_notes()},
                 {"claims", claims_section(claimed_, report_)},
                 {"environment", environment()},
                 {"definitions", definitions()},
                 {"footer", escape_html(fmt::format("evalrun {}, commit {}. Charts: Chart.js, MIT "
                                                    "licence. This page loads nothing else.",
                                                    report_.run.version, report_.run.commit))},
                 {"data", html_data(report_, store_)},
                 {"chart", std::string(chart)},
                 {"script", script}});
  }

 private:
  std::string model() const {
    return distinct_over_rows(report_, [](const ReportRow& r) { return r.arm.model; });
  }
  std::string title() const {
    const RunInfo& run = report_.run;
    return fmt::format("{}: {}", model(), run.label.empty() ? "suite " + run.suite : run.label);
  }
  std::string run_notes() const {
    Document notes;
    for (const std::string& remark : run_remarks(report_)) notes.note(remark);
    return reports::render(notes, Format::kHtml);
  }

  std::string summary() const {
    const RunInfo& run = report_.run;
    const auto of = [&](auto value) { return distinct_over_rows(report_, value); };
    const auto cpu = run.environment.find("cpu");
    const std::string lines[] = {
        run_line(run),
        fmt::format("{}{} · weights {}", cpu == run.environment.end() ? "" : cpu->second + " · ",
                    of([&](const ReportRow& r) { return engine_text(run, r.arm); }),
                    of([](const ReportRow& r) { return weights_text(r.arm); })),
        fmt::format("At most {} new tokens · {} · {} · speedup: {}; intervals for {}: {}",
                    of([](const ReportRow& r) { return max_new_text(r.arm); }),
                    of([](const ReportRow& r) { return sampling_text(r.arm); }),
                    of([](const ReportRow& r) { return base::plural(r.counts.repeats, "repeat"); }),
                    estimator_text(report_.estimator), scope_text(report_.scope),
                    interval_text(report_.interval))};
    std::string out;
    const auto add = [&](const std::string& line) {
      out += fmt::format("<p class=\"facts\">{}</p>\n", escape_html(line));
    };
    for (const std::string& line : lines) add(line);
    if (!run.several_machines()) return out;
    add(machines_paragraph(run));
    for (const std::string& line : row_cost_lines(run)) add(line);
    return out;
  }

  std::string environment() const {
    std::string rows;
    const auto add = [&](const std::string& name, const std::string& value) {
      if (!value.empty())
        rows += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape_html(name),
                            escape_html(value));
    };
    const RunInfo& run = report_.run;
    add("started", run.started);
    add("finished", run.finished.empty() ? "not yet" : run.finished);
    add("threads", distinct_over_rows(report_, [](const ReportRow& r) {
          return fmt::format("{}", r.arm.threads);
        }));
    for (const ReportRow& r : report_.rows)
      if (r.arm.role == "aa" && r.speed.speedup && r.dataset == report_.rows.back().dataset)
        add("noise floor", noise_floor_text(r));
    for (const auto& [name, value] : run.environment)
      // Tables of row costs are no text: that of one sequence is drawn. Of a path, a reader
      // elsewhere needs the last part only.
      if (!name.starts_with("row_cost"))
        add(name, value.starts_with('/') ? value.substr(value.find_last_of('/') + 1) : value);
    return "<div class=\"scroll\"><table class=\"environment\"><tbody>\n" + rows +
           "</tbody></table></div>\n";
  }

  static std::string definitions() {
    std::string out;
    for (const MetricInfo& m : metric_glossary())
      out += fmt::format("<dt id=\"def-{0}\">{0}</dt><dd>{1}</dd>\n", escape_html(m.name),
                         escape_html(m.definition));
    return out;
  }

  const Report& report_;
  const results::ResultStore& store_;
  const PublishedVsMeasured* claimed_;
};

}  // namespace

std::string to_html(const Report& report, const results::ResultStore& store,
                    const PublishedVsMeasured* claimed) {
  return HtmlRenderer(report, store, claimed).render();
}

}  // namespace evalrun::reports
