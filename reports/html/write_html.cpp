// The report as one HTML page. Tables and texts are written here, so that they are there without
// scripts; reports/html holds the template, the style and the scripts that draw the charts.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/format.h"
#include "reports/html/assets.h"
#include "reports/html/html_data.h"
#include "reports/html/html_sections.h"
#include "reports/table/metric_glossary.h"
#include "reports/table/report.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

std::string_view asset(std::string_view name) {
  for (const EmbeddedFile& file : html_assets())
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

std::string badge(const char* kind, const std::string& text) {
  return fmt::format("<span class=\"badge {}\">{}</span>", kind, escape_html(text));
}
std::string header_cell(const std::string& text, const char* definition) {
  return fmt::format("<th scope=\"col\"><a href=\"#def-{}\">{}</a></th>", definition,
                     escape_html(text));
}
std::string range(const std::optional<base::Interval>& i, int decimals) {
  return i ? fmt::format(" <span class=\"range\">[{}, {}]</span>", number(i->lo, decimals),
                         number(i->hi, decimals))
           : "";
}

class HtmlRenderer {
 public:
  HtmlRenderer(const Report& report, const results::ResultStore& store, const Claimed* claimed)
      : report_(report), store_(store), claimed_(claimed) {}

  std::string render() {
    const std::string_view chart = chart_library().front().text, style = asset("style.css");
    std::string script;  // one, in this order
    for (const char* part : {"plot.js", "figures.js", "detail.js", "page.js"})
      script += asset(part);
    const std::string policy = fmt::format(
        "default-src 'none'; style-src {}; script-src {} {}; img-src data:; base-uri 'none'; "
        "form-action 'none'",
        policy_hash(style), policy_hash(chart), policy_hash(script));
    // The pooled rows first; the data sets behind them on demand.
    const std::vector<std::string> datasets = datasets_of(report_);
    std::string tables = table(datasets.back());
    for (size_t i = 0; i + 1 < datasets.size(); ++i)
      tables += fmt::format("<details class=\"part-table\"><summary>{}</summary>\n{}</details>\n",
                            escape_html(datasets[i]), table(datasets[i]));
    tables += memory_section(report_) + gpu_section(report_);
    return fill(asset("template.html"),
                {{"csp", policy},
                 {"title", escape_html(title())},
                 {"style", std::string(style)},
                 {"summary", summary()},
                 {"tables", tables},
                 {"notes", paragraphs(run_remarks(report_))},
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
  static std::string paragraphs(const std::vector<std::string>& texts) {
    std::string out;
    for (const std::string& t : texts)
      out += fmt::format("<p class=\"note\">{}</p>\n", escape_html(t));
    return out;
  }

  std::string summary() const {
    const RunInfo& run = report_.run;
    const auto of = [&](auto value) { return distinct_over_rows(report_, value); };
    const auto cpu = run.environment.find("cpu");
    const std::string lines[] = {
        fmt::format("Run {}{} · suite {} · {} · evalrun {}, commit {}", run.id,
                    run.label.empty() ? "" : fmt::format(" '{}'", run.label), run.suite,
                    run.started, run.version, run.commit),
        fmt::format("{}{} · weights {}", cpu == run.environment.end() ? "" : cpu->second + " · ",
                    of([&](const ReportRow& r) { return engine_text(run, r.arm); }),
                    of([](const ReportRow& r) {
                      return r.arm.dtype + setting_text(r.arm, "kv_dtype", ", KV ");
                    })),
        fmt::format("At most {} new tokens · {} · {} · speedup: {}; intervals for new prompts "
                    "(population): {}",
                    of([](const ReportRow& r) {
                      return fmt::format("{}{}", r.arm.max_new,
                                         r.arm.ignore_eos ? " (stop tokens ignored)" : "");
                    }),
                    of([](const ReportRow& r) { return sampling_text(r.arm); }),
                    of([](const ReportRow& r) { return base::plural(r.repeats, "repeat"); }),
                    estimator_text(report_.estimator), interval_text(report_.interval))};
    std::string out;
    for (const std::string& l : lines)
      out += fmt::format("<p class=\"facts\">{}</p>\n", escape_html(l));
    return out;
  }

  std::string table(const std::string& dataset) const {
    std::vector<const ReportRow*> lossless, lossy;
    const ReportRow* aa = nullptr;
    std::set<std::string> evaluators;
    for (const ReportRow& r : report_.rows) {
      if (r.dataset != dataset) continue;
      if (r.arm.role == "aa") {
        aa = &r;
        continue;
      }
      (r.arm.lossy() ? lossy : lossless).push_back(&r);
      for (const auto& [name, q] : r.quality) evaluators.insert(name);
    }
    std::string out = fmt::format(
        "<h3>{} ({})</h3>\n<div class=\"scroll\"><table class=\"comparison\">\n<thead><tr>"
        "<th scope=\"col\">method</th>",
        escape_html(dataset == "all" ? "all data sets" : dataset),
        escape_html(prompts_text(report_, dataset, prompts_of(report_, dataset))));
    out += header_cell(speedup_header(report_.estimator) + " [95 %]", "speedup") +
           header_cell("tok/s", "tok_s") + header_cell("tau(+bonus)", "tau") +
           header_cell("accepted/step", "accepted_per_step") +
           header_cell("alpha_draft", "alpha_draft") + header_cell("no draft", "no_draft") +
           header_cell("same tokens", "identical_share");
    out += "</tr></thead>\n<tbody>\n";
    for (const ReportRow* r : lossless) out += row(*r);
    if (!lossy.empty()) out += part_row(8);
    for (const ReportRow* r : lossy) out += row(*r);
    out += "</tbody></table></div>\n";
    if (aa != nullptr && aa->speedup)
      out += fmt::format("<p class=\"note\"><a href=\"#def-noise\">Noise floor</a>: {}</p>\n",
                         escape_html(noise_floor(*aa)));
    if (!evaluators.empty()) out += quality_table(lossless, lossy, evaluators);
    return out + paragraphs(dataset_remarks(report_, dataset));
  }

  // Apart from the other figures: several evaluators would push them out of sight.
  static std::string quality_table(const std::vector<const ReportRow*>& lossless,
                                   const std::vector<const ReportRow*>& lossy,
                                   const std::set<std::string>& evaluators) {
    std::string out =
        "<div class=\"scroll\"><table class=\"comparison quality\">\n<thead><tr>"
        "<th scope=\"col\">method</th>";
    for (const std::string& e : evaluators) out += header_cell(e + " [95 %]", "quality");
    out += "</tr></thead>\n<tbody>\n";
    for (const auto* rows : {&lossless, &lossy}) {
      if (rows == &lossy && !lossy.empty()) out += part_row(1 + evaluators.size());
      for (const ReportRow* r : *rows) {
        out += fmt::format("<tr><th scope=\"row\">{}</th>", arm_label(r->arm.label));
        for (const std::string& e : evaluators) {
          const auto q = r->quality.find(e);
          out += fmt::format("<td>{}</td>", q == r->quality.end() ? "-" : quality_cell(q->second));
        }
        out += "</tr>\n";
      }
    }
    return out + "</tbody></table></div>\n";
  }

  static std::string part_row(size_t columns) {
    return fmt::format(
        "<tr class=\"part\"><th scope=\"rowgroup\" colspan=\"{}\"><span>Not lossless, and not "
        "to be ranked with the rows above</span></th></tr>\n",
        columns);
  }

  static std::string noise_floor(const ReportRow& aa) {
    return fmt::format("plain decoding against itself gives {}; smaller differences mean nothing.",
                       with_interval(aa.speedup, aa.speedup_interval, aa.n_prompts, 3));
  }

  static std::string lossless_badge(const ArmInfo& arm) {
    if (arm.role == "baseline") return badge("", "baseline");
    if (arm.lossless == "none") return badge("warn", "not lossless");
    if (arm.lossless == "both") return badge("good", "lossless");
    return arm.greedy() ? badge("good", "lossless when greedy")
                        : badge("warn", "lossless only when greedy");
  }

  // What was shown beside what is claimed.
  static std::string certificate_badge(const ArmInfo& arm) {
    if (!arm.certificate) return "";
    const auto linked = [](const std::string& text) {
      return " <a href=\"#def-certificate\">" + text + "</a>";
    };
    if (arm.certificate->outcome == "fails") return linked(badge("bad", "fails verify"));
    if (arm.certificate->proven.empty()) return "";
    return linked(badge("good", "proven: " + arm.certificate->proven));
  }

  // A lossless method that decodes greedily promises every token.
  static std::string identical_cell(const ReportRow& r) {
    if (r.asked && !r.reference.empty()) return "by force";
    if (r.reference.empty() || !r.identical_share) return "-";
    const bool promised = r.arm.greedy() && !r.arm.lossy();
    const char* kind = *r.identical_share == 1 ? "good" : promised ? "bad" : "";
    return badge(kind, percent(r.identical_share, 1));
  }

  static std::string row(const ReportRow& r) {
    const bool indicative = r.speedup_interval && r.n_prompts < kIndicativeBelow;
    std::string out = fmt::format(
        "<tr><th scope=\"row\">{} {}{}{}</th><td>{}{}{}</td>", arm_label(r.arm.label),
        lossless_badge(r.arm), certificate_badge(r.arm),
        r.failed > 0 ? " " + badge("bad", fmt::format("{} failed", r.failed)) : "",
        number(r.speedup, 2), range(r.speedup_interval, 2),
        indicative ? "<a href=\"#def-indicative\" title=\"indicative: fewer than 30 prompts\">*</a>"
                   : "");
    for (const std::string& cell :
         {number(r.tok_s, 1), number(r.tau, 3), number(r.accepted_per_step, 3),
          number(r.alpha_draft, 3), percent(r.no_draft, 1), identical_cell(r)})
      out += fmt::format("<td>{}</td>", cell);
    return out + "</tr>\n";
  }

  static std::string quality_cell(const Quality& q) {
    if (q.n == 0) return fmt::format("- <span class=\"range\">({})</span>", quality_remarks(q));
    std::string out = number(q.value, 3) + range(q.interval, 3);
    for (const auto& [k, share] : q.pass_at)
      if (k == 10 || k == 100) out += fmt::format("<br>pass@{} {}", k, number(share, 3));
    return out + fmt::format("<br><span class=\"range\">{}</span>", quality_remarks(q));
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
      if (r.arm.role == "aa" && r.speedup && r.dataset == report_.rows.back().dataset)
        add("noise floor", noise_floor(r));
    for (const auto& [name, value] : run.environment)
      // The table of row costs is drawn; of a path, a reader elsewhere needs the last part only.
      if (name != "row_cost")
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
  const Claimed* claimed_;
};

}  // namespace

std::string to_html(const Report& report, const results::ResultStore& store,
                    const Claimed* claimed) {
  return HtmlRenderer(report, store, claimed).render();
}

}  // namespace evalrun::reports
