// The report as LaTeX tables (booktabs), to be pasted into a paper: one table environment per data
// set, since each has its own number of prompts and evaluators.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "reports/format.h"
#include "reports/table/arm_tables.h"
#include "reports/table/metric_glossary.h"
#include "reports/table/report.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

// A quality column: an evaluator, and where it is a pass@k, one k of it (else 0).
struct QualityColumn {
  std::string evaluator;
  int k = 0;
  std::string title() const { return k > 0 ? fmt::format("pass@{}", k) : evaluator; }
};

std::string figure(const std::optional<double>& v, int decimals) {
  return v ? number(v, decimals) : "--";
}
std::string bracket(const std::optional<base::Interval>& i, int decimals) {
  return i ? fmt::format("[{}, {}]", number(i->lo, decimals), number(i->hi, decimals)) : "";
}
std::string share(const std::optional<double>& v) {
  return v ? fmt::format("{}\\,\\%", number(100 * *v, 1)) : "--";
}

class LatexRenderer {
 public:
  explicit LatexRenderer(const Report& report) : report_(report) {}

  std::string render() {
    const RunInfo& run = report_.run;
    comment(fmt::format("evalrun {}, run {}{}, suite {}, commit {}, {}", run.version, run.id,
                        run.label.empty() ? "" : fmt::format(" '{}'", run.label), run.suite,
                        run.commit, run.started));
    comment("Needs \\usepackage{booktabs}. In a paper of two columns, write table* for table.");
    comment("Columns are defined in docs/measurement.md (evalrun list metrics).");
    for (const std::string& d : datasets_of(report_)) table(d);
    memory();
    gpu();
    return out_;
  }

 private:
  void comment(const std::string& text) { out_ += "% " + latex_comment(text) + "\n"; }
  void line(const std::string& text) { out_ += text + "\n"; }

  void table(const std::string& dataset) {
    std::vector<const ReportRow*> lossless, lossy;
    const ReportRow* aa = nullptr;
    for (const ReportRow& r : report_.rows) {
      if (r.dataset != dataset) continue;
      if (r.arm.role == "aa")
        aa = &r;
      else
        (r.arm.lossy() ? lossy : lossless).push_back(&r);
    }
    std::stable_partition(lossless.begin(), lossless.end(),
                          [](const ReportRow* r) { return r->arm.role == "baseline"; });
    std::vector<QualityColumn> quality = quality_columns(dataset), apart;
    // Two would not fit the width of a page: then they get a table of their own.
    if (quality.size() > 1) apart.swap(quality);

    std::string columns = "lr@{ }lrrr";
    std::string header = fmt::format("method & \\multicolumn{{2}}{{c}}{{{} [95\\,\\%]}} & tok/s & ",
                                     speedup_header(report_.estimator));
    header += "$\\tau$ (+bonus) & $\\alpha$";
    for (const QualityColumn& q : quality) {
      columns += "r@{ }l";
      header += fmt::format(" & \\multicolumn{{2}}{{c}}{{{} [95\\,\\%]}}", escape_latex(q.title()));
    }
    begin(caption(dataset, !lossy.empty(), aa), latex_label(dataset), columns + "r",
          header + " & identical");
    line("    \\midrule");
    for (const ReportRow* r : lossless) row(*r, quality);
    if (!lossy.empty()) line("    \\midrule");
    for (const ReportRow* r : lossy) row(*r, quality);
    end();
    if (apart.empty()) return;
    std::string text = fmt::format(
        "Quality on {}, as in Table~\\ref{{tab:evalrun-{}}}: mean score of $n$ answers; brackets: "
        "95\\,\\% interval for new prompts of the same kind.",
        escape_latex(dataset == "all" ? "all data sets" : dataset), latex_label(dataset));
    if (!lossy.empty()) text += " $^{\\dagger}$: not lossless.";
    begin(text, latex_label(dataset) + "-quality", "lr@{ }lr",
          "method & \\multicolumn{2}{c}{score [95\\,\\%]} & $n$");
    for (const QualityColumn& column : apart) {
      line("    \\midrule");
      line(fmt::format("    \\multicolumn{{4}}{{l}}{{\\emph{{{}}}}} \\\\",
                       escape_latex(column.title())));
      for (const auto* rows : {&lossless, &lossy})
        for (const ReportRow* r : *rows)
          if (const auto q = r->quality.find(column.evaluator); q != r->quality.end())
            line(fmt::format("    {} & {} & {} \\\\", method_cell(*r), quality_cells(*r, column),
                             q->second.n));
    }
    end();
  }

  void memory() {
    const Table t = memory_table(report_);
    begin(
        "Memory: weights of the target, what the method keeps beside it (adapter, draft model, "
        "datastore), keys and values, most memory of the process.",
        "memory", "lrrrr", "method & weights & extra & KV & peak");
    body(t);
  }

  void gpu() {
    const Table t = gpu_table(report_);
    if (t.rows.empty()) return;
    begin(
        "GPU: milliseconds of a step that it was busy with each phase, by its own clock, and that "
        "it was not (host); its share of decoding; energy of whole generations, and tokens per "
        "joule over those of the arm that speedup is against.",
        "gpu", "lrrrrrrr", "method & draft & verify & commit & host & busy & J/token & gain");
    body(t);
  }

  void body(const Table& t) {
    line("    \\midrule");
    for (const std::vector<std::string>& row : t.rows) {
      std::string cells;
      for (const std::string& cell : row)
        cells += (cells.empty() ? "" : " & ") + (cell == "-" ? "--" : escape_latex(cell));
      line("    " + cells + " \\\\");
    }
    end();
  }

  void begin(const std::string& text, const std::string& label, const std::string& columns,
             const std::string& header) {
    line("");
    line("\\begin{table}");
    line("  \\centering");
    line(fmt::format("  \\caption{{{}}}", text));
    line(fmt::format("  \\label{{tab:evalrun-{}}}", label));
    line("  \\footnotesize\\setlength{\\tabcolsep}{4pt}");
    line(fmt::format("  \\begin{{tabular}}{{{}}}", columns));
    line("    \\toprule");
    line(fmt::format("    {} \\\\", header));
  }
  void end() {
    line("    \\bottomrule");
    line("  \\end{tabular}");
    line("\\end{table}");
  }

  // With a certificate for the way this arm decodes.
  static bool proven_lossless(const ArmInfo& arm) {
    return arm.certificate && arm.certificate->outcome == "holds" &&
           (arm.greedy() || arm.certificate->proven.find("sampling") != std::string::npos);
  }

  static std::string method_cell(const ReportRow& r) {
    return escape_latex(r.arm.label) + (r.arm.lossy()            ? "$^{\\dagger}$"
                                        : proven_lossless(r.arm) ? "$^{\\ddagger}$"
                                                                 : "");
  }

  std::vector<QualityColumn> quality_columns(const std::string& dataset) const {
    std::set<std::string> evaluators;
    std::set<std::string> with_k;
    for (const ReportRow& r : report_.rows)
      if (r.dataset == dataset)
        for (const auto& [name, q] : r.quality) {
          evaluators.insert(name);
          if (!q.pass_at.empty()) with_k.insert(name);
        }
    std::vector<QualityColumn> columns;
    for (const std::string& e : evaluators) {
      if (with_k.count(e) == 0) {
        columns.push_back({e, 0});
        continue;
      }
      for (const int k : report_.pass_k)
        if (std::any_of(report_.rows.begin(), report_.rows.end(), [&](const ReportRow& r) {
              const auto q = r.quality.find(e);
              return r.dataset == dataset && q != r.quality.end() && q->second.pass_at.count(k) > 0;
            }))
          columns.push_back({e, k});
    }
    return columns;
  }

  void row(const ReportRow& r, const std::vector<QualityColumn>& quality) {
    std::string speedup = bracket(r.speedup_interval, 2);
    if (!speedup.empty() && r.n_prompts < kIndicativeBelow) speedup += "$^{*}$";
    std::string cells =
        fmt::format("    {} & {} & {} & {} & {} & {}", method_cell(r), figure(r.speedup, 2),
                    speedup, figure(r.tok_s, 1), figure(r.tau, 2), figure(r.alpha_draft, 2));
    for (const QualityColumn& column : quality) cells += " & " + quality_cells(r, column);
    line(cells + " & " +
         (r.reference.empty() ? "--"
          : r.asked           ? "by force"
                              : share(r.identical_share)) +
         " \\\\");
  }

  static std::string quality_cells(const ReportRow& r, const QualityColumn& column) {
    const auto q = r.quality.find(column.evaluator);
    if (q == r.quality.end() || q->second.n == 0) return "-- & ";
    if (column.k == 0) return number(q->second.value, 3) + " & " + bracket(q->second.interval, 3);
    const auto value = q->second.pass_at.find(column.k);
    if (value == q->second.pass_at.end()) return "-- & ";
    return number(value->second, 3) + " & " + (column.k == 1 ? bracket(q->second.interval, 3) : "");
  }

  std::string caption(const std::string& dataset, bool lossy, const ReportRow* aa) const {
    const auto of = [&](const auto& value) { return escape_latex(distinct(dataset, value)); };
    // A GPU is named with the device.
    std::string machine = escape_latex(machine_name(report_.run));
    machine = machine.empty() || report_.run.environment.contains("gpu") ? "" : machine + ", ";
    std::string text = fmt::format(
        "Decoding speed on {}: {} ({}), {} on {}{}, {}, at most {} new tokens. ",
        escape_latex(dataset == "all" ? "all data sets" : dataset),
        of([](const ReportRow& r) { return r.arm.model; }), of([](const ReportRow& r) {
          return r.arm.dtype + setting_text(r.arm, "kv_dtype", ", KV ");
        }),
        escape_latex(prompts_text(report_, dataset, prompts_of(report_, dataset))), machine,
        of([&](const ReportRow& r) { return engine_text(report_.run, r.arm); }),
        of([](const ReportRow& r) {
          return r.arm.greedy() ? std::string("greedy decoding") : sampling_text(r.arm);
        }),
        of([](const ReportRow& r) { return fmt::format("{}", r.arm.max_new); }));
    text += fmt::format(
        "Speedup: {} of decode speed against plain decoding; brackets: 95\\,\\% interval for new "
        "prompts of the same kind (population; {}){}. ",
        estimator_text(report_.estimator),
        report_.interval == IntervalKind::kStudent ? "Student's $t$ over prompts"
                                                   : interval_text(report_.interval),
        indicative(dataset) ? "; $^{*}$: fewer than 30 prompts, indicative only" : "");
    text +=
        "$\\tau$: tokens per step, the target's own included; $\\alpha$: accepted over drafted "
        "tokens; identical: answers with the token ids of plain decoding.";
    const auto any = [&](auto f) {
      return std::any_of(report_.rows.begin(), report_.rows.end(),
                         [&](const ReportRow& r) { return r.dataset == dataset && f(r); });
    };
    if (any([](const ReportRow& r) { return r.asked.has_value(); }))
      text += " By force: methods were led along plain decoding's text.";
    if (any([](const ReportRow& r) { return r.degenerate > 0; }))
      text += report_.exclude_degenerate ? " Answers that run in a loop are left out."
                                         : " Some answers run in a loop.";
    if (lossy) text += " $^{\\dagger}$: not lossless.";
    if (any([](const ReportRow& r) { return proven_lossless(r.arm); }))
      text += " $^{\\ddagger}$: shown to be lossless by \\texttt{evalrun verify}.";
    if (aa != nullptr && aa->speedup)
      text += fmt::format(" Plain decoding against itself: {} {}.", number(aa->speedup, 3),
                          bracket(aa->speedup_interval, 3));
    return text;
  }

  template <typename F>
  std::string distinct(const std::string& dataset, const F& value) const {
    std::vector<std::string> seen;
    for (const ReportRow& r : report_.rows)
      if (r.dataset == dataset)
        if (const std::string v = value(r); std::find(seen.begin(), seen.end(), v) == seen.end())
          seen.push_back(v);
    return fmt::format("{}", fmt::join(seen, " / "));
  }

  bool indicative(const std::string& dataset) const {
    return std::any_of(report_.rows.begin(), report_.rows.end(), [&](const ReportRow& r) {
      return r.dataset == dataset && r.speedup_interval && r.n_prompts < kIndicativeBelow;
    });
  }

  const Report& report_;
  std::string out_;
};

}  // namespace

std::string to_latex(const Report& report) { return LatexRenderer(report).render(); }

}  // namespace evalrun::reports
