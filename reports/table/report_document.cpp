// Sections of the report, in order: what was measured, a part per data set, memory, GPU, how to
// read it.
#include "reports/table/report_document.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"
#include "reports/format.h"
#include "reports/table/answer.h"
#include "reports/table/arm_tables.h"
#include "reports/table/batch_tables.h"
#include "reports/table/comparison_table.h"
#include "reports/table/machine_tables.h"
#include "reports/table/metric_glossary.h"
#include "reports/table/run_text.h"
#include "reports/table/server_notes.h"

namespace evalrun::reports {
namespace {

template <typename F>
bool any_row(const Report& report, const F& is) {
  return std::any_of(report.rows.begin(), report.rows.end(), is);
}

void add_header(const Report& report, Document& d) {
  const RunInfo& run = report.run;
  const auto of = [&](const auto& value) { return distinct_over_rows(report, value); };
  d.paragraph(run_line(run));
  int64_t prompts = 0, repeats = 0, samples = 0;
  for (const ReportRow& r : report.rows) {
    prompts = std::max(prompts, r.counts.prompts);
    repeats = std::max(repeats, r.counts.repeats);
    samples = std::max(samples, r.counts.samples);
  }
  d.paragraph(fmt::format(
      "{} · {} · {} · {} · {} · max_new {} · {} · {} · speedup: {} · intervals: 95 %, {}, {}",
      of([](const ReportRow& r) { return r.arm.model; }),
      of([](const ReportRow& r) { return weights_text(r.arm); }), of([](const ReportRow& r) {
        return is_server(r.arm) ? "over HTTP" : r.arm.isa + setting_text(r.arm, "bits", " ");
      }),
      of([&](const ReportRow& r) { return place_text(run, r.arm); }),
      base::plural(prompts, "prompt"), of([](const ReportRow& r) { return max_new_text(r.arm); }),
      of([](const ReportRow& r) { return sampling_text(r.arm); }),
      samples > 1 ? fmt::format("{} samples, {}", samples, base::plural(repeats, "repeat"))
                  : base::plural(repeats, "repeat"),
      estimator_text(report.estimator), scope_text(report.scope), interval_text(report.interval)));
}

// Arms of another model than the baseline's: which, and what their columns are against.
std::string tuned_text(const Report& report) {
  const auto base = std::find_if(report.rows.begin(), report.rows.end(),
                                 [](const ReportRow& r) { return r.arm.role == "baseline"; });
  if (base == report.rows.end()) return "";
  std::vector<std::string> arms;  // rows of several data sets say the same
  for (const ReportRow& r : report.rows) {
    if (r.arm.model_hash == base->arm.model_hash) continue;
    if (is_server(r.arm) || is_server(base->arm)) continue;
    const std::string name = r.reference.empty()
                                 ? r.arm.label
                                 : fmt::format("{} (against {})", r.arm.label, r.reference);
    if (std::find(arms.begin(), arms.end(), name) == arms.end()) arms.push_back(name);
  }
  if (arms.empty()) return "";
  return fmt::format(
      "tuned model: these arms decode a changed target instead of {}: {}. Their speedup and same "
      "tokens are against plain decoding of that target ({}), their quality against {}'s.",
      base->arm.model, fmt::join(arms, ", "), kTunedPlain, report.control);
}

// The sections that the tables' columns are defined in.
std::string definitions_text(const Report& report) {
  const bool gpu = !gpu_table(report).rows.empty(), energy = !energy_table(report).rows.empty();
  std::vector<std::string> sections;
  for (const MetricInfo& m : metric_glossary())
    if (const std::string s = std::string("#") + m.anchor;
        (gpu || s != "#gpu") && (energy || s != "#energy") &&
        std::find(sections.begin(), sections.end(), s) == sections.end())
      sections.push_back(s);
  return fmt::format(
      "definitions: docs/measurement.md ({}); evalrun list metrics prints "
      "them.",
      fmt::join(sections, ", "));
}

std::string speedup_note(const Report& report) {
  const bool few = any_row(report, [&](const ReportRow& r) { return has_star(report, r); });
  return fmt::format(
      "speedup: {} of decode speed, (tokens - 1) / decode time, over the prompts; prefill is not "
      "in it. Brackets: 95 % interval for {}, {}{}.",
      estimator_text(report.estimator), scope_text(report.scope), interval_text(report.interval),
      few ? fmt::format("; *: {}", kIndicative) : "");
}

// What the columns mean: the same for every run.
void add_explanations(const Report& report, Document& d) {
  d.paragraph("Reading the table:");
  d.note(definitions_text(report));
  d.note(speedup_note(report));
  d.note(
      "request: the same speedup for whole requests, prefill and the drafter's prefill included.");
  d.note(
      "first token: milliseconds that the first token of an answer takes, and the same over plain "
      "decoding's. It is the target's prefill of the first turn; the drafter's comes after it.");
  d.note(
      "tau: tokens per target forward of a step, the one the target itself supplies (the bonus) "
      "included; plain decoding is 1. accepted/step leaves that one out. DE: tokens per target "
      "forward, drafting with the target included.");
  d.note(
      "alpha: accepted / drafted. alpha_share: accepted / emitted. alpha_cond: accepted at a "
      "depth, given that all before it were. no draft: share of steps in which nothing was "
      "drafted; alpha does not see them.");
  d.note(
      "same tokens: share of generations whose token ids equal those of the baseline arm. Lossless "
      "methods must show 100 % under greedy decoding, and when sampling unless they put drawn "
      "drafts to a rejection test: those keep the distribution, not the draw.");
  if (any_row(report, [](const ReportRow& r) { return r.arm.certificate.has_value(); }))
    d.note(
        "shown lossless: what `evalrun verify` found for this method with this build, these "
        "weights and this engine mode. identical: the tokens of plain decoding; decisions audited: "
        "every draw and every acceptance made again by a second implementation. Both are proofs. "
        "law not refuted: tests found nothing. In brackets: how many decisions, and the smallest "
        "fault (total variation) that would have been found.");
  if (any_row(report, [](const ReportRow& r) { return !r.quality.empty(); })) {
    d.note(fmt::format(
        "quality: mean score [95 %]; n answers were scored, of which so many differ in score from "
        "{}'s answer to the same prompt (a lossless method that decodes the same model greedily: "
        "none). pass@k needs k samples of every problem; greedy decoding has one, so what SPACE's "
        "greedy tables call Pass@10 is pass@1 here.",
        report.control.empty() ? "a baseline" : report.control));
    d.note(fmt::format(
        "difference: mean over prompts of score minus {}'s, paired. Intervals and p of a score "
        "hold for all arms at once (max-t): p is below 0.05 just where the interval leaves 0 out. "
        "Where few prompts differ, they count as few. An arm that scores as {} does on every "
        "prompt has neither and is not among them.",
        report.control.empty() ? "the baseline" : report.control,
        report.control.empty() ? "the baseline" : report.control));
    d.note(
        "-vs-baseline: likeness to the baseline arm's answer to the same prompt, not to a "
        "reference; the same text has 1 (bleu: 100).");
  }
  d.note(
      "why: speedup = tau / (T(n)/T(1) + draft + overhead), in units of one plain step; residual: "
      "what that leaves unexplained. rows/step: rows of the target forward, the root and what a "
      "method computes beside its draft included. bandwidth: weights read by the target's forwards "
      "over decode time, as a share of what the memory gave before the run.");
}

// What this run needs to be read rightly, and where the rest is.
void add_notes(const Report& report, Document& d) {
  if (const std::string tuned = tuned_text(report); !tuned.empty()) d.note(tuned);
  if (any_row(report, [&](const ReportRow& r) { return has_star(report, r); }))
    d.note(fmt::format("*: {}.", kIndicative));
  if (report.explain)
    add_explanations(report, d);
  else
    d.note("What the columns mean: evalrun report --explain, or docs/measurement.md.");
}

// One line where every method's scores are the control's; else a table.
bool same_scores(const Report& report, const DatasetRows& rows) {
  if (report.control.empty()) return false;
  bool compared = false;
  for (const ReportRow* r : rows.all())
    for (const auto& [name, q] : r->quality) {
      if (r->arm.label == report.control) continue;
      if (q.compared == 0 || q.differing > 0) return false;
      compared = true;
    }
  return compared;
}

void add_quality(const Report& report, const std::string& name, const DatasetRows& rows,
                 Document& d) {
  Table t = quality_table(report, name, rows);
  if (t.rows.empty()) return;
  if (same_scores(report, rows)) {
    std::vector<std::string> scores;
    for (size_t c = 1; c < t.columns.size(); ++c)
      scores.push_back(fmt::format("{} {}",
                                   t.columns[c].name.substr(0, t.columns[c].name.find(" [")),
                                   t.rows.front()[c].plain()));
    d.paragraph(fmt::format("Quality: every answer scores as {}'s does: {}.", report.control,
                            fmt::join(scores, "; ")));
    return;
  }
  d.table(std::move(t));
  if (Table c = control_table(report, rows); !c.rows.empty()) {
    const bool few = few_prompts_differ(c);
    d.table(std::move(c));
    d.paragraph(fmt::format(
        "Paired by prompt; the intervals of a score hold for all arms at once. p is below 0.05 "
        "just where the interval leaves 0 out.{}",
        few ? fmt::format(" *: {}.", kFewPromptsDiffer) : ""));
  }
}

}  // namespace

void add_dataset(const Report& report, const std::string& name, bool with_answer, Document& d) {
  const DatasetRows rows(report, name);
  d.heading(fmt::format("{} ({})", dataset_name(name),
                        prompts_text(report, name, prompts_of(report, name))));
  if (const std::string text = with_answer ? answer(report, name) : ""; !text.empty())
    d.paragraph(text, true);
  if (!rows.all().empty()) d.table(comparison_table(report, name, rows));
  if (const std::string note = servers_note(rows); !note.empty()) d.paragraph(note);
  if (const std::string note = overlap_note(rows); !note.empty()) d.paragraph(note);
  if (const std::string note = flatters_note(rows); !note.empty()) d.paragraph(note);
  for (const ReportRow* aa : rows.aa)
    if (aa->speed.speedup) d.paragraph(noise_floor_text(*aa));
  if (Table t = ranking_table(rows); !t.rows.empty()) {
    d.table(std::move(t));
    d.paragraph(
        "Paired by prompt; these intervals and ranks hold for all arms at once. The intervals of "
        "the speedups are against plain decoding and say little about two arms.");
  }
  if (Table t = machine_table(report.run, rows); !t.rows.empty()) {
    d.table(std::move(t));
    if (const std::string remark = machines_remark(report.run, rows); !remark.empty())
      d.paragraph(remark);
  }
  add_quality(report, name, rows, d);
  if (report.why) d.table(why_table(rows));
  for (const std::string& remark : dataset_remarks(report, name)) d.paragraph(remark);
  for (const std::string& remark : server_remarks(rows)) d.paragraph(remark);
  add_batches(report, name, d);
}

Document document(const Report& report) {
  Document d{.name = "report"};
  // Of several data sets, the pooled rows answer.
  const std::vector<std::string> datasets = datasets_of(report);
  if (const std::string text = answer(report, datasets.back()); !text.empty())
    d.paragraph(text, true);
  add_header(report, d);
  if (const std::string text = machines_paragraph(report.run); !text.empty()) d.paragraph(text);
  for (const std::string& line : row_cost_lines(report.run)) d.paragraph(line);
  for (const std::string& name : datasets) add_dataset(report, name, datasets.size() > 1, d);
  if (Table t = memory_table(report); !t.rows.empty()) {
    d.heading("memory");
    d.table(std::move(t));
  }
  if (Table t = gpu_table(report); !t.rows.empty()) {
    d.heading("GPU");
    d.table(std::move(t));
  }
  if (Table t = energy_table(report); !t.rows.empty()) {
    const bool cpu =
        any_row(report, [](const ReportRow& r) { return r.energy && r.arm.device == "cpu"; });
    d.heading(cpu ? "energy of the processor and its memory" : "energy of the GPU's board");
    d.table(std::move(t));
  }
  for (const std::string& remark : run_remarks(report)) d.paragraph(remark);
  add_notes(report, d);
  d.data = report_records(report);
  return d;
}

}  // namespace evalrun::reports
