// The report as Markdown (to be pasted) and as aligned text (for a terminal): one renderer, two
// dialects.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "reports/format.h"
#include "reports/table/arm_tables.h"
#include "reports/table/metric_glossary.h"
#include "reports/table/report.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

class Renderer {
 public:
  Renderer(const Report& report, bool markdown, bool colour)
      : report_(report), markdown_(markdown), colour_(colour) {}

  std::string render() {
    header();
    for (const std::string& d : datasets_of(report_)) dataset(d);
    memory();
    gpu();
    notes();
    return out_;
  }

 private:
  // ---- pieces of either dialect ----
  std::string text(const std::string& s) const { return markdown_ ? escape_markdown(s) : s; }
  void heading(const std::string& s) {
    out_ += markdown_ ? fmt::format("\n#### {}\n\n", text(s))
                      : fmt::format("\n{}\n{:-<{}}\n", s, "", display_width(s));
  }
  void paragraph(const std::string& s) { out_ += text(s) + (markdown_ ? "\n\n" : "\n"); }
  void table(const Table& t) { out_ += (markdown_ ? t.markdown() : t.text(colour_)) + "\n"; }
  void note(const std::string& s) { out_ += (markdown_ ? "- " : "  ") + text(s) + "\n"; }

  template <typename F>
  std::string distinct(const F& value) const {
    return distinct_over_rows(report_, value);
  }

  std::string estimator() const { return estimator_text(report_.estimator); }

  void header() {
    const RunInfo& run = report_.run;
    paragraph(fmt::format("evalrun {} · run {}{} · suite {} · commit {} · {}", run.version, run.id,
                          run.label.empty() ? "" : fmt::format(" '{}'", run.label), run.suite,
                          run.commit, run.started));
    int64_t prompts = 0, repeats = 0, samples = 0;
    for (const ReportRow& r : report_.rows) {
      prompts = std::max(prompts, r.n_prompts);
      repeats = std::max(repeats, r.repeats);
      samples = std::max(samples, r.samples);
    }
    paragraph(fmt::format(
        "{} · {} · {} · {} · {} · max_new {} · {} · {} · speedup: {}",
        distinct([](const ReportRow& r) { return r.arm.model; }), distinct([](const ReportRow& r) {
          return r.arm.dtype + setting_text(r.arm, "kv_dtype", ", KV ");
        }),
        distinct([](const ReportRow& r) { return r.arm.isa + setting_text(r.arm, "bits", " "); }),
        distinct([&](const ReportRow& r) { return place_text(run, r.arm); }),
        base::plural(prompts, "prompt"), distinct([](const ReportRow& r) {
          return fmt::format("{}{}", r.arm.max_new,
                             r.arm.ignore_eos ? " (stop tokens ignored)" : "");
        }),
        distinct([](const ReportRow& r) { return sampling_text(r.arm); }),
        samples > 1 ? fmt::format("{} samples, {}", samples, base::plural(repeats, "repeat"))
                    : base::plural(repeats, "repeat"),
        estimator()));
    row_cost();
  }

  // What a forward of n rows cost when the run began; a broken or missing table shows nothing.
  void row_cost() {
    const auto found = report_.run.environment.find("row_cost");
    if (found == report_.run.environment.end()) return;
    const nlohmann::json table = nlohmann::json::parse(found->second, nullptr, false);
    if (!table.is_object() || !table.contains("rows") || !table["rows"].is_array()) return;
    const auto number = [](const nlohmann::json& object, const char* key) {
      return object.is_object() && object.contains(key) && object[key].is_number()
                 ? object[key].get<double>()
                 : 0.0;
    };
    std::string ratios;
    for (const nlohmann::json& row : table["rows"])
      if (const auto n = static_cast<uint64_t>(number(row, "rows"));
          n > 1 && std::has_single_bit(n))
        ratios += fmt::format("{}{:.0f} rows {:.2f}", ratios.empty() ? "" : ", ",
                              number(row, "rows"), number(row, "ratio"));
    if (!ratios.empty())
      paragraph(fmt::format("T(n)/T(1) before the run, context {:.0f}: {}",
                            number(table, "context"), ratios));
  }

  void dataset(const std::string& name) {
    std::vector<const ReportRow*> lossless, lossy;
    const ReportRow* aa = nullptr;
    for (const ReportRow& r : report_.rows) {
      if (r.dataset != name) continue;
      if (r.arm.role == "aa")
        aa = &r;
      else
        (r.arm.lossy() ? lossy : lossless).push_back(&r);
    }
    heading(fmt::format("{} ({})", name == "all" ? "all data sets" : name,
                        prompts_text(report_, name, prompts_of(report_, name))));
    if (!lossless.empty()) table(main_table(lossless));
    if (!lossy.empty()) {
      paragraph("Not lossless, and not to be ranked with the rows above:");
      table(main_table(lossy));
    }
    std::vector<const ReportRow*> both = lossless;
    both.insert(both.end(), lossy.begin(), lossy.end());
    if (const Table t = control_table(both); !t.rows.empty()) table(t);
    if (report_.why) table(why_table(both));
    if (aa != nullptr && aa->speedup)
      paragraph(fmt::format(
          "Noise floor: {} against itself gives {}; smaller differences mean nothing.",
          aa->arm.method, with_interval(aa->speedup, aa->speedup_interval, aa->n_prompts, 3)));
    for (const std::string& remark : dataset_remarks(report_, name)) paragraph(remark);
  }

  void memory() {
    heading("memory");
    table(memory_table(report_));
  }

  void gpu() {
    const Table t = gpu_table(report_);
    if (t.rows.empty()) return;
    heading("GPU");
    table(t);
  }

  static std::string method_cell(const ReportRow& r) {
    return r.failed > 0 ? fmt::format("{} ({} failed)", r.arm.label, r.failed) : r.arm.label;
  }

  std::string quality_cell(const ReportRow& r) const {
    std::string cell;
    for (const auto& [name, q] : r.quality) {
      if (!cell.empty()) cell += "; ";
      if (q.n == 0) {
        cell += name + " -";
      } else if (q.pass_at.empty()) {
        cell += fmt::format("{} {}", name, with_range(q.value, q.interval));
      } else {
        std::vector<std::string> values;
        for (const int k : report_.pass_k)
          if (const auto it = q.pass_at.find(k); it != q.pass_at.end())
            values.push_back(k == 1 ? fmt::format("pass@1 {}", with_range(it->second, q.interval))
                                    : fmt::format("pass@{} {}", k, number(it->second, 3)));
        cell += fmt::format("{}", fmt::join(values, ", "));
        cell += fmt::format(" ({})", q.version);
      }
      if (q.sd) cell += fmt::format(" ± {}", number(q.sd, 3));
      cell += fmt::format(" ({})", quality_remarks(q));
    }
    return cell.empty() ? "-" : cell;
  }
  static std::string with_range(double value, const std::optional<base::Interval>& interval) {
    if (!interval) return number(value, 3);
    return fmt::format("{} [{}, {}]", number(value, 3), number(interval->lo, 3),
                       number(interval->hi, 3));
  }

  static std::string certificate_cell(const ReportRow& r) {
    const auto& certificate = r.arm.certificate;
    if (!certificate) return "-";
    if (certificate->outcome == "fails") return "FAILS";
    return certificate->proven.empty() ? certificate->outcome : certificate->proven;
  }

  Table main_table(const std::vector<const ReportRow*>& rows) {
    const auto any = [&](auto f) { return std::any_of(rows.begin(), rows.end(), f); };
    const bool sampled = any([](const ReportRow* r) { return r->sample_sd.has_value(); });
    const bool scored = any([](const ReportRow* r) { return !r->quality.empty(); });
    const bool looping = any([](const ReportRow* r) { return r->degenerate > 0; });
    const bool led = any([](const ReportRow* r) { return r->asked.has_value(); });
    const bool certified = any([](const ReportRow* r) { return r->arm.certificate.has_value(); });
    Table t;
    t.header = {"method", speedup_header(report_.estimator) + " [95 %]"};
    if (sampled) t.header.push_back("over samples");
    for (const char* h : {"tok/s", "tau(+bonus)", "accepted/step", "DE", "no draft", "alpha_draft",
                          "alpha_share", "drafted/accepted/emitted", "same tokens"})
      t.header.push_back(h);
    if (led) t.header.push_back("replay: differ");
    if (looping) t.header.push_back("in a loop");
    if (certified) t.header.push_back("proven lossless");
    if (scored) t.header.push_back("quality");
    for (const std::string& h : t.header) t.links.push_back(link_of(h));
    mark(t, rows);
    for (const ReportRow* r : rows) {
      std::vector<std::string> line = {
          method_cell(*r), with_interval(r->speedup, r->speedup_interval, r->n_prompts)};
      if (sampled)
        line.push_back(r->sample_sd ? number(r->sample_mean, 2) + " ± " + number(r->sample_sd, 2)
                                    : "-");
      std::string alpha = number(r->alpha_draft, 3);
      if (r->drafted != r->drafted_depth)
        alpha += fmt::format(" ({}/depth)", number(r->alpha_draft_depth, 3));
      line.insert(line.end(),
                  {number(r->tok_s, 1), number(r->tau, 3), number(r->accepted_per_step, 3),
                   number(r->de, 3), percent(r->no_draft, 1), alpha, number(r->alpha_share, 3),
                   count(r->drafted) + " / " + count(r->accepted) + " / " + count(r->emitted),
                   r->reference.empty()   ? "-"
                   : r->asked.has_value() ? "by force"
                                          : percent(r->identical_share, 1)});
      if (led) line.push_back(replay_text(*r));
      if (looping) line.push_back(fmt::format("{} of {}", r->degenerate, r->cells));
      if (certified) {
        line.push_back(certificate_cell(*r));
        if (line.back() == "FAILS") t.styles[{t.rows.size(), line.size() - 1}] = Style::kBad;
      }
      if (scored) line.push_back(quality_cell(*r));
      t.rows.push_back(std::move(line));
    }
    return t;
  }

  // Where a column of any of these tables is defined; "" for what is none.
  static std::string link_of(const std::string& header) {
    static const std::map<std::string, const char*> metrics = {
        {"speedup [95 %]", "speedup"},
        {"speedup", "speedup"},
        {"over samples", "speedup"},
        {"tok/s", "tok_s"},
        {"tau(+bonus)", "tau"},
        {"= tau", "tau"},
        {"accepted/step", "accepted_per_step"},
        {"DE", "de"},
        {"no draft", "no_draft"},
        {"alpha_draft", "alpha_draft"},
        {"alpha_share", "alpha_share"},
        {"drafted/accepted/emitted", "emitted"},
        {"same tokens", "identical_share"},
        {"proven lossless", "certificate"},
        {"quality", "quality"},
        {"score", "quality"},
        {"difference [95 %]", "quality"},
        {"better / equal / worse", "quality"},
        {"/ (T(n)/T(1)", "t_ratio"},
        {"+ draft", "draft_share"},
        {"+ overhead)", "overhead"},
        {"residual", "residual"},
        {"rows/step", "rows_per_step"},
        {"alpha_cond by depth", "alpha_cond"}};
    const auto found = metrics.find(header);
    return found == metrics.end() ? "" : definition_of(found->second);
  }

  // The best speedup, where it is one, among arms that may be ranked with each other.
  static void mark(Table& t, const std::vector<const ReportRow*>& rows) {
    const ReportRow* best = nullptr;
    for (const ReportRow* r : rows)
      if (r->arm.drafts() && !r->arm.lossy() && r->speedup && *r->speedup > 1 &&
          (best == nullptr || *r->speedup > *best->speedup))
        best = r;
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i] == best) t.styles[{i, 1}] = Style::kBold;
  }

  // Scores that are not the control's, paired per prompt.
  Table control_table(const std::vector<const ReportRow*>& rows) const {
    Table t;
    t.header = {"quality against " + report_.control, "score", "difference [95 %]",
                "better / equal / worse"};
    for (const std::string& h : t.header) t.links.push_back(link_of(h));
    for (const ReportRow* r : rows)
      for (const auto& [name, q] : r->quality) {
        if (q.differing == 0) continue;
        std::string difference = fmt::format("{:+.3f}", *q.difference);
        if (const auto& i = q.difference_interval)
          difference += fmt::format(" [{:+.3f}, {:+.3f}]", i->lo, i->hi);
        t.rows.push_back(
            {r->arm.label, name, difference,
             fmt::format("{} / {} / {}", q.better, q.compared - q.differing, q.worse)});
      }
    return t;
  }

  static Table why_table(const std::vector<const ReportRow*>& rows) {
    const bool bandwidth = std::any_of(rows.begin(), rows.end(), [](const ReportRow* r) {
      return r->bandwidth_share.has_value();
    });
    Table t;
    t.header = {"why",         "speedup",  "= tau",     "/ (T(n)/T(1)",       "+ draft",
                "+ overhead)", "residual", "rows/step", "alpha_cond by depth"};
    if (bandwidth) t.header.push_back("bandwidth");
    for (const std::string& h : t.header) t.links.push_back(link_of(h));
    for (const ReportRow* r : rows) {
      std::string depths;
      constexpr size_t kShown = 6;
      for (size_t d = 0; d < std::min(kShown, r->alpha_by_depth.size()); ++d)
        depths +=
            fmt::format("{}{}", d > 0 ? " " : "", number(r->alpha_by_depth[d].conditional, 2));
      if (r->alpha_by_depth.size() > kShown) depths += " ...";
      t.rows.push_back({r->arm.label, number(r->speedup, 3), number(r->tau, 3),
                        number(r->t_ratio, 3), number(r->draft_share, 3), number(r->overhead, 3),
                        percent(r->residual, 1), number(r->rows_per_step, 2),
                        depths.empty() ? "-" : depths});
      if (bandwidth) t.rows.back().push_back(percent(r->bandwidth_share, 0));
    }
    return t;
  }

  void notes() {
    for (const std::string& remark : run_remarks(report_)) paragraph(remark);
    paragraph("Reading the table:");
    if (!markdown_) note("definitions: " + definitions() + "; evalrun list metrics prints them.");
    note(fmt::format(
        "speedup: {} of decode speed, (tokens - 1) / decode time, over the prompts; prefill "
        "is not in it. Brackets: 95 % interval for new prompts of the same kind (population), "
        "{}{}.",
        estimator(), interval_text(report_.interval),
        indicative() ? "; * fewer than 30 prompts: indicative only" : ""));
    note(
        "tau(+bonus): tokens per target forward of a step, the one the target itself supplies "
        "included; "
        "plain decoding is 1. accepted/step leaves that one out. DE: tokens per target forward, "
        "drafting with the target included.");
    note(
        "no draft: share of steps in which nothing was drafted: they give one token, and "
        "alpha_draft does not see them.");
    note(
        "alpha_draft: accepted / drafted. alpha_share: accepted / emitted. alpha_cond: accepted at "
        "a "
        "depth, given that all before it were.");
    note(
        "same tokens: share of generations whose token ids equal those of the baseline arm. "
        "Lossless "
        "methods must show 100 % under greedy decoding; under sampling they keep the distribution, "
        "not the draw.");
    if (std::any_of(report_.rows.begin(), report_.rows.end(),
                    [](const ReportRow& r) { return r.arm.certificate.has_value(); }))
      note(
          "proven lossless: what `evalrun verify` showed for this method with this build, these "
          "weights and this engine mode: greedy = the tokens of plain decoding; sampling = the "
          "distribution "
          "of its steps or texts, by a test that a planted wrong acceptance fails.");
    if (std::any_of(report_.rows.begin(), report_.rows.end(),
                    [](const ReportRow& r) { return !r.quality.empty(); }))
      note(
          "quality: mean score [95 %]; n answers were scored, of which so many differ in score "
          "from " +
          (report_.control.empty() ? "a baseline" : report_.control) +
          "'s answer to the same prompt (a lossless method that decodes the same model greedily: "
          "none); where some do, the table behind gives the mean difference, paired per prompt. "
          "pass@k needs k "
          "samples of every problem; greedy decoding has one, so what "
          "SPACE's "
          "greedy tables call Pass@10 is pass@1 here.");
    if (std::any_of(report_.rows.begin(), report_.rows.end(), [](const ReportRow& r) {
          return std::any_of(r.quality.begin(), r.quality.end(), [](const auto& q) {
            return q.first.find("-vs-baseline@") != std::string::npos;
          });
        }))
      note(
          "-vs-baseline: likeness to the baseline arm's answer to the same prompt, not to a "
          "reference; the same text has 1 (bleu: 100).");
    tuned_note();
    if (report_.why)
      note(
          "why: speedup = tau / (T(n)/T(1) + draft + overhead), in units of one plain step; "
          "residual: "
          "what that leaves unexplained. rows/step: rows of the target forward, the root and what "
          "a method computes beside its draft included.");
    if (report_.why &&
        std::any_of(report_.rows.begin(), report_.rows.end(),
                    [](const ReportRow& r) { return r.bandwidth_share.has_value(); }))
      note(
          "bandwidth: weights read by the target's forwards over decode time, as a share of what "
          "the memory gave before the run.");
  }

  // Arms of another model than the baseline's: which, and what their columns are against.
  void tuned_note() {
    const auto base = std::find_if(report_.rows.begin(), report_.rows.end(),
                                   [](const ReportRow& r) { return r.arm.role == "baseline"; });
    if (base == report_.rows.end()) return;
    std::vector<std::string> arms;  // rows of several data sets say the same
    for (const ReportRow& r : report_.rows) {
      if (r.arm.model_hash == base->arm.model_hash) continue;
      const std::string name = r.reference.empty()
                                   ? r.arm.label
                                   : fmt::format("{} (against {})", r.arm.label, r.reference);
      if (std::find(arms.begin(), arms.end(), name) == arms.end()) arms.push_back(name);
    }
    if (arms.empty()) return;
    note(fmt::format(
        "tuned model: these arms decode a changed target instead of {}: {}. Their speedup and same "
        "tokens are against plain decoding of that target ({}), their quality against "
        "{}'s.",
        base->arm.model, fmt::join(arms, ", "), kTunedPlain, report_.control));
  }

  // The sections that the tables' columns are defined in.
  std::string definitions() const {
    const bool gpu = !gpu_table(report_).rows.empty();
    std::vector<std::string> sections;
    for (const MetricInfo& m : metric_glossary())
      if (const std::string s = std::string("#") + m.anchor;
          (gpu || s != "#gpu") && std::find(sections.begin(), sections.end(), s) == sections.end())
        sections.push_back(s);
    return fmt::format("docs/measurement.md ({})", fmt::join(sections, ", "));
  }

  bool indicative() const {
    return std::any_of(report_.rows.begin(), report_.rows.end(), [](const ReportRow& r) {
      return r.speedup_interval && r.n_prompts < kIndicativeBelow;
    });
  }

  const Report& report_;
  bool markdown_, colour_;
  std::string out_;
};

}  // namespace

std::string to_markdown(const Report& report) { return Renderer(report, true, false).render(); }
std::string to_text(const Report& report, bool colour) {
  return Renderer(report, false, colour).render();
}

}  // namespace evalrun::reports
