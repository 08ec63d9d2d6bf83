#include "reports/table/comparison_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "reports/figures/quotable.h"
#include "reports/format.h"
#include "reports/table/flattered.h"
#include "reports/table/metric_glossary.h"
#include "reports/table/run_text.h"
#include "reports/table/training_overlap.h"

namespace evalrun::reports {
namespace {

using Rows = std::vector<const ReportRow*>;

struct ReportColumn {
  Column column;
  std::function<Cell(const ReportRow&)> cell;
  std::string id = {};  // for --columns
  bool usual = true;    // shown when nothing else is asked for
};

// Rows that are not lossless, and those of a batch, stand under a line that says so.
Table table_of_rows(const std::vector<ReportColumn>& columns, const DatasetRows& rows) {
  Table t;
  for (const ReportColumn& c : columns) t.columns.push_back(c.column);
  const Rows all = rows.all();
  for (const ReportRow* r : all) {
    t.rows.emplace_back();
    for (const ReportColumn& c : columns) t.rows.back().push_back(c.cell(*r));
  }
  t.parts = rows.titles;
  return t;
}

template <typename Group>
ReportColumn metric_figure(const char* name, const char* metric, int decimals,
                           Group ReportRow::*group, std::optional<double> Group::*field,
                           Room room = Room::kAlways) {
  return {metric_column(name, metric, room),
          [=](const ReportRow& r) { return number(r.*group.*field, decimals); }};
}

Badge lossless_badge(const ArmInfo& arm) {
  if (arm.role == "baseline") return {"baseline"};
  if (is_server(arm)) return {"server"};
  if (synthetic(arm)) return {"synthetic acceptance", Style::kWarn};
  if (arm.lossless == "none") return {"not lossless", Style::kWarn};
  if (arm.lossless == "both") return {"lossless", Style::kGood};
  return arm.greedy() ? Badge{"lossless when greedy", Style::kGood}
                      : Badge{"lossless only when greedy", Style::kWarn};
}

Cell method_cell(const ReportRow& r, const std::string& name) {
  Cell cell(name);
  if (!training_overlap(r.arm).empty()) cell.text += fmt::format(" {}", kOverlapMark);
  if (!flattered_by(r.arm).empty()) cell.text += fmt::format(" {}", kFlattersMark);
  cell.badges.push_back(lossless_badge(r.arm));
  // What was shown beside what is claimed.
  if (const auto& c = r.arm.certificate; c && c->outcome == "fails")
    cell.badges.push_back({"fails verify", Style::kBad, "certificate"});
  else if (c && !c->proven.empty())
    cell.badges.push_back({"proven: " + c->proven, Style::kGood, "certificate"});
  if (r.counts.failed > 0) cell.remark = fmt::format("{} failed", r.counts.failed);
  return cell;
}

Cell certificate_cell(const ReportRow& r) {
  const auto& certificate = r.arm.certificate;
  if (!certificate) return "-";
  if (certificate->outcome == "fails") return {"FAILS", Style::kBad};
  const std::string shown = results::shown_by(*certificate);
  return shown.empty() ? certificate->outcome : shown;
}

Cell same_tokens_cell(const ReportRow& r) {
  if (r.reference.empty()) return "-";
  if (r.replay) return "by force";
  const bool broken = r.same_tokens.share && *r.same_tokens.share < 1 && promises_tokens(r.arm) &&
                      r.arm.role != "baseline" && !r.against_server;
  return {percent(r.same_tokens.share, 1), broken                     ? Style::kBad
                                           : r.same_tokens.share == 1 ? Style::kGood
                                                                      : Style::kPlain};
}

bool asked_for(const Report& report, const std::string& column) {
  return std::find(report.columns.begin(), report.columns.end(), column) != report.columns.end();
}

// Whether figures have the column that only those who ask for it see.
bool shows_first_token(const Report& report) {
  return asked_for(report, "all") || asked_for(report, "first_token_ratio");
}

// A score of one evaluator, or its pass@k for one k (else 0).
struct QualityColumn {
  std::string evaluator;
  int k = 0;
  bool with_remarks = true;  // the first of an evaluator's columns
  std::string title() const { return k > 0 ? fmt::format("pass@{}", k) : evaluator; }
};

std::vector<QualityColumn> quality_columns(const Report& report, const Rows& rows) {
  std::set<std::string> evaluators;
  for (const ReportRow* r : rows)
    for (const auto& [name, q] : r->quality) evaluators.insert(name);
  std::vector<QualityColumn> columns;
  for (const std::string& e : evaluators) {
    const auto any = [&](const auto& is) {
      return std::any_of(rows.begin(), rows.end(), [&](const ReportRow* r) {
        const auto q = r->quality.find(e);
        return q != r->quality.end() && is(q->second);
      });
    };
    const size_t before = columns.size();
    for (const int k : report.pass_k)
      if (any([&](const Quality& q) { return q.pass_at.contains(k); }))
        columns.push_back({e, k, columns.size() == before});
    if (columns.size() == before) columns.push_back({e});
  }
  return columns;
}

ReportColumn quality_column(const QualityColumn& column, const std::string& name) {
  return {metric_column(name, "quality"), [column](const ReportRow& r) -> Cell {
            const auto found = r.quality.find(column.evaluator);
            if (found == r.quality.end()) return "-";
            const Quality& q = found->second;
            Cell cell("-");
            if (column.with_remarks) cell.remark = quality_remarks(q);
            if (q.n == 0) return cell;
            if (column.k > 0 && !q.pass_at.contains(column.k)) return cell;
            cell.text = number(column.k > 0 ? q.pass_at.at(column.k) : q.value, 3);
            if (column.k > 1) return cell;
            if (q.interval) cell.range = bracket(*q.interval, 3);
            if (q.sd) cell.range += fmt::format("{}± {}", q.interval ? " " : "", number(q.sd, 3));
            if (column.k == 1) cell.remark = q.version + ", " + cell.remark;
            return cell;
          }};
}

Cell difference_cell(const ControlDifference& d) {
  Cell cell(fmt::format("{:+.3f}", d.value));
  if (!d.interval) {
    cell.remark = d.spread == Spread::kEqual      ? "no prompt's mean differs"
                  : d.spread == Spread::kConstant ? "no spread"
                  : d.prompts == 1                ? "one prompt"
                                                  : "one group of prompts";
    return cell;
  }
  cell.range = fmt::format("[{:+.3f}, {:+.3f}]", d.interval->lo, d.interval->hi);
  cell.indicative = d.differing < kIndicativeBelow;
  if (cell.indicative) cell.remark = fmt::format("{} of {} prompts differ", d.differing, d.prompts);
  return cell;
}

// Rounded down: 0.050 stands for no p below 0.05, as its interval does not leave 0 out. Draws of
// the largest error tell none apart that are far smaller than 0.001.
std::string p_text(const ControlDifference& d) {
  if (!d.p) return "-";
  return *d.p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", std::floor(*d.p * 1000) / 1000);
}

// Among arms that may be ranked with each other.
bool is_best(const ReportRow& r) {
  return r.ranking && r.ranking->fastest && r.arm.drafts() && r.speed.speedup &&
         *r.speed.speedup > 1;
}

// All there are for these rows, in order. The rows must outlive them.
std::vector<ReportColumn> possible_columns(const Report& report, const DatasetRows& rows) {
  const auto any = [&](auto f) { return std::any_of(rows.rows.begin(), rows.rows.end(), f); };
  std::vector<ReportColumn> c = {
      {{.name = "method", .words = true},
       [&rows](const ReportRow& r) { return method_cell(r, rows.name(r)); },
       "method"}};
  const auto add = [&](const char* id, ReportColumn column, bool usual = true) {
    column.id = id;
    column.usual = usual;
    c.push_back(std::move(column));
  };
  const auto acceptance = [](const char* name, const char* metric,
                             std::optional<double> Acceptance::*field, Room room = Room::kAlways) {
    return metric_figure(name, metric, 3, &ReportRow::acceptance, field, room);
  };
  add("speedup", {metric_column(speedup_header(report.estimator) + " [95 %]", "speedup"),
                  [](const ReportRow& r) {
                    Cell cell = figure_cell(r.speed.speedup, r.speed.interval, r.speed.n_eff, 2);
                    if (is_best(r)) cell.style = Style::kBold;
                    return cell;
                  }});
  add("samples",
      {metric_column("over samples", "speedup", Room::kPage),
       [](const ReportRow& r) {
         return r.speed.sample_sd
                    ? number(r.speed.sample_mean, 2) + " ± " + number(r.speed.sample_sd, 2)
                    : "-";
       }},
      any([](const ReportRow* r) { return r->speed.sample_sd.has_value(); }));
  add("request", {metric_column("request [95 %]", "request_speedup"), [](const ReportRow& r) {
                    return figure_cell(r.speed.request, r.speed.request_interval,
                                       r.speed.request_n_eff, 2);
                  }});
  add("first_token_ms",
      metric_figure("first token ms", "first_token_ms", 1, &ReportRow::speed,
                    &SpeedFigures::first_token_ms),
      false);
  add("first_token_ratio",
      {metric_column("first token / plain [95 %]", "first_token_ratio"),
       [](const ReportRow& r) {
         return figure_cell(r.speed.first_token_ratio, r.speed.first_token_interval,
                            r.speed.first_token_n_eff, 2);
       }},
      false);
  add("tok_s",
      metric_figure("tok/s", "tok_s", 1, &ReportRow::speed, &SpeedFigures::tok_s, Room::kSpare));
  add("tau", acceptance("tau", "tau", &Acceptance::tau));
  add("accepted_per_step",
      acceptance("accepted/step", "accepted_per_step", &Acceptance::accepted_per_step), false);
  add("de", acceptance("DE", "de", &Acceptance::de), false);
  add("no_draft",
      {metric_column("no draft", "no_draft"),
       [](const ReportRow& r) { return percent(r.acceptance.no_draft, 1); }},
      false);
  add("alpha", acceptance("alpha", "alpha_draft", &Acceptance::alpha_draft, Room::kSpare));
  add("alpha_depth", acceptance("alpha/depth", "alpha_draft_depth", &Acceptance::alpha_draft_depth),
      false);
  add("alpha_share", acceptance("alpha_share", "alpha_share", &Acceptance::alpha_share), false);
  add("counts",
      {metric_column("drafted/accepted/emitted", "emitted"),
       [](const ReportRow& r) {
         return count(r.acceptance.drafted) + " / " + count(r.acceptance.accepted) + " / " +
                count(r.acceptance.emitted);
       }},
      false);
  add("same_tokens", {metric_column("same tokens", "identical_share"), same_tokens_cell});
  add("replay", {{.name = "replay: differ", .room = Room::kPage}, replay_text},
      any([](const ReportRow* r) { return r->replay.has_value(); }));
  add("loops",
      {{.name = "in a loop", .room = Room::kPage},
       [](const ReportRow& r) {
         return fmt::format("{} of {}", r.loops.degenerate, r.loops.cells);
       }},
      any([](const ReportRow* r) { return r->loops.degenerate > 0; }));
  Column certificate = metric_column("shown lossless", "certificate");
  certificate.words = true;  // a sentence: wrapped where the table is wide
  add("certificate", {certificate, certificate_cell},
      any([](const ReportRow* r) { return r->arm.certificate.has_value(); }));
  return c;
}

// Those asked for; the method always.
std::vector<ReportColumn> comparison_columns(const Report& report, const DatasetRows& rows) {
  std::vector<ReportColumn> shown = possible_columns(report, rows);
  const bool all = asked_for(report, "all");
  std::erase_if(shown, [&](const ReportColumn& c) {
    return c.id != "method" && !all &&
           !(report.columns.empty() ? c.usual : asked_for(report, c.id));
  });
  return shown;
}

// For a paper: where and how the table was measured, and what its columns are.
std::string comparison_caption(const Report& report, const std::string& dataset,
                               const DatasetRows& rows) {
  const Rows all = rows.all();
  const auto any = [&](auto f) { return std::any_of(all.begin(), all.end(), f); };
  const auto of = [&](const auto& value) {
    std::vector<std::string> seen;
    for (const ReportRow* r : all)
      if (const std::string v = value(*r); std::find(seen.begin(), seen.end(), v) == seen.end())
        seen.push_back(v);
    return fmt::format("{}", fmt::join(seen, " / "));
  };
  // A GPU is named with the device.
  std::string machine = machine_name(report.run);
  machine = machine.empty() || report.run.environment.contains("gpu") ? "" : machine + ", ";
  std::string text = fmt::format(
      "Decoding speed on {}: {} ({}), {} on {}{}, {}, at most {} new tokens. Speedup: {} of decode "
      "speed against plain decoding; brackets: 95 % interval for {}, {}{}. Request: the same with "
      "prefill. τ: tokens per step, the target's own "
      "included; α: accepted over drafted "
      "tokens; same tokens: answers with the token ids of plain decoding.",
      dataset_name(dataset), of([](const ReportRow& r) { return r.arm.model; }),
      of([](const ReportRow& r) { return weights_text(r.arm); }),
      prompts_text(report, dataset, prompts_of(report, dataset)), machine,
      of([&](const ReportRow& r) { return engine_text(report.run, r.arm); }),
      of([](const ReportRow& r) {
        return r.arm.greedy() ? std::string("greedy decoding") : sampling_text(r.arm);
      }),
      of([](const ReportRow& r) { return fmt::format("{}", r.arm.max_new); }),
      estimator_text(report.estimator), scope_text(report.scope), interval_text(report.interval),
      any([&](const ReportRow* r) { return has_star(report, *r); })
          ? fmt::format("; *: {}", kIndicative)
          : "");
  if (report.run.several_machines())
    text += fmt::format(" Formed within {} machines; the intervals are for these.",
                        report.run.machines.size());
  if (shows_first_token(report) || asked_for(report, "first_token_ms"))
    text += " First token: time of the target's prefill, first turns.";
  if (any([](const ReportRow* r) { return r->replay.has_value(); }))
    text += " By force: methods were made to follow plain decoding's text.";
  if (any([](const ReportRow* r) { return r->loops.degenerate > 0; }))
    text += report.exclude_degenerate ? " Answers that run in a loop are left out."
                                      : " Some answers run in a loop.";
  if (any([](const ReportRow* r) { return r->arm.certificate.has_value(); }))
    text += " Shown lossless: by evalrun verify.";
  if (const std::string note = overlap_note(rows); !note.empty()) text += " " + note;
  if (const std::string note = flatters_note(rows); !note.empty()) text += " " + note;
  for (const ReportRow* aa : rows.aa)
    if (aa->speed.speedup) text += " " + noise_floor_text(*aa);
  if (const std::string warning = not_quotable_text(report, dataset); !warning.empty())
    text += " " + warning;
  return text;
}

std::vector<const ArmInfo*> arms_in(const DatasetRows& rows) {
  std::vector<const ArmInfo*> arms;
  for (const ReportRow* r : rows.all()) arms.push_back(&r->arm);
  return arms;
}

}  // namespace

DatasetRows::DatasetRows(const Report& report, const std::string& dataset) {
  for (const ReportRow& r : report.rows)
    if (r.dataset == dataset) (r.arm.role == "aa" ? aa : rows).push_back(&r);
  std::stable_sort(rows.begin(), rows.end(), [](const ReportRow* a, const ReportRow* b) {
    return std::pair(a->arm.batch, standing(a->arm)) < std::pair(b->arm.batch, standing(b->arm));
  });
  const bool several = !rows.empty() && rows.front()->arm.batch != rows.back()->arm.batch;
  bool lossless = false;  // of the batch, above the row
  for (size_t i = 0; i < rows.size(); ++i) {
    const ArmInfo& arm = rows[i]->arm;
    const bool first = i == 0 || rows[i - 1]->arm.batch != arm.batch;
    if (first) lossless = false;
    if (several && first) titles[i] = batches[i] = fmt::format("Batch {}", arm.batch);
    const Standing own = standing(arm);
    if (own == Standing::kLossy && (first || standing(rows[i - 1]->arm) != own))
      titles[i] = fmt::format(
          "{}{}", several ? fmt::format("Batch {}, not", arm.batch) : "Not",
          lossless ? " lossless, and not to be ranked with the rows above" : " lossless");
    if (own == Standing::kSynthetic && (first || standing(rows[i - 1]->arm) != own))
      titles[i] =
          fmt::format("{} acceptance: no method, and not to be ranked with one",
                      several ? fmt::format("Batch {}, synthetic", arm.batch) : "Synthetic");
    lossless = lossless || own == Standing::kLossless;
  }
}

std::string DatasetRows::name(const ReportRow& r) const {
  return batches.empty() ? r.arm.label : label_without_batch(r.arm);
}

bool has_star(const Report& report, const ReportRow& r) {
  const auto few = [](const std::optional<base::Interval>& i, double n_eff) {
    return i && n_eff < kIndicativeBelow;
  };
  const SpeedFigures& s = r.speed;
  return few(s.interval, s.n_eff) || few(s.request_interval, s.request_n_eff) ||
         (shows_first_token(report) && few(s.first_token_interval, s.first_token_n_eff));
}

std::string overlap_note(const DatasetRows& rows) {
  return overlap_note(overlap_sentence(arms_in(rows)));
}

std::string flatters_note(const DatasetRows& rows) { return flatters_note(arms_in(rows)); }

std::vector<std::string> column_names() {
  std::vector<std::string> names = {"all"};
  const Report none = {};
  const DatasetRows no_rows(none, "");
  for (const ReportColumn& c : possible_columns(none, no_rows))
    if (c.id != "method") names.push_back(c.id);
  return names;
}

Table comparison_table(const Report& report, const std::string& dataset, const DatasetRows& rows) {
  Table t = table_of_rows(comparison_columns(report, rows), rows);
  t.caption = comparison_caption(report, dataset, rows);
  t.label = dataset;
  return t;
}

Table ranking_table(const DatasetRows& rows) {
  Table t{.columns = {{.name = "compared with each other", .words = true},
                      metric_column("speed / fastest's [95 %]", "may_be_fastest"),
                      metric_column("rank", "may_be_fastest")}};
  Rows ranked;
  for (const ReportRow* r : rows.all())
    if (r->ranking) ranked.push_back(r);
  // Arms of a batch are compared with each other; as many of them in every batch.
  constexpr size_t kPlainAndTwoMethods = 3;
  if (ranked.size() <= kPlainAndTwoMethods * std::max<size_t>(1, rows.batches.size())) return t;
  std::stable_sort(ranked.begin(), ranked.end(), [](const ReportRow* a, const ReportRow* b) {
    return std::pair(a->arm.batch, -a->ranking->against_fastest) <
           std::pair(b->arm.batch, -b->ranking->against_fastest);
  });
  for (const ReportRow* r : ranked) {
    const Ranking& k = *r->ranking;
    if (!rows.batches.empty() &&
        (t.rows.empty() || ranked[t.rows.size() - 1]->arm.batch != r->arm.batch))
      t.parts[t.rows.size()] = fmt::format("Batch {}", r->arm.batch);
    t.rows.push_back({Cell(rows.name(*r), k.may_be_fastest ? Style::kBold : Style::kPlain),
                      figure_cell(k.against_fastest, k.against_fastest_interval, k.n_eff, 3),
                      k.lowest == k.highest ? fmt::format("{}", k.lowest)
                                            : fmt::format("{} to {}", k.lowest, k.highest)});
  }
  t.caption =
      "Arms compared with each other, paired by prompt: intervals and ranks hold for all arms at "
      "once. Bold: may be the fastest.";
  return t;
}

Table quality_table(const Report& report, const std::string& dataset, const DatasetRows& rows) {
  const std::vector<QualityColumn> quality = quality_columns(report, rows.all());
  if (quality.empty()) return {};
  std::vector<ReportColumn> columns = {
      {{.name = "quality", .words = true}, [](const ReportRow& r) { return Cell(r.arm.label); }}};
  for (const QualityColumn& q : quality)
    columns.push_back(quality_column(q, q.title() + (q.k > 1 ? "" : " [95 %]")));
  Table t = table_of_rows(columns, rows);
  t.caption = fmt::format("Quality on {}: mean scores; brackets: 95 % interval for {}.",
                          dataset_name(dataset), scope_text(report.scope));
  t.label = dataset + "-quality";
  return t;
}

bool few_prompts_differ(const Table& control_table) {
  return std::any_of(control_table.rows.begin(), control_table.rows.end(),
                     [](const auto& row) { return row[2].indicative; });
}

Table control_table(const Report& report, const DatasetRows& rows) {
  Table t{.columns = {{.name = "quality against " + report.control, .words = true},
                      metric_column("score", "quality"),
                      metric_column("difference [95 %]", "quality"),
                      metric_column("p", "quality"),
                      metric_column("better / equal / worse", "quality")}};
  t.columns[1].words = true;
  for (const ReportRow* r : rows.all())
    for (const auto& [name, q] : r->quality) {
      if (q.differing == 0) continue;
      t.rows.push_back({r->arm.label, name, difference_cell(*q.difference), p_text(*q.difference),
                        fmt::format("{} / {} / {}", q.better, q.compared - q.differing, q.worse)});
    }
  t.caption = fmt::format(
      "Scores that are not those of {}, paired by prompt: the intervals of a score hold for all "
      "arms at once; p is below 0.05 just where the interval leaves 0 out{}.",
      report.control, few_prompts_differ(t) ? fmt::format("; *: {}", kFewPromptsDiffer) : "");
  return t;
}

Table why_table(const DatasetRows& rows) {
  const Rows all = rows.all();
  std::vector<ReportColumn> c = {
      {{.name = "why", .words = true}, [&](const ReportRow& r) { return Cell(rows.name(r)); }},
      metric_figure("speedup", "speedup", 3, &ReportRow::speed, &SpeedFigures::speedup),
      metric_figure("= tau", "tau", 3, &ReportRow::acceptance, &Acceptance::tau),
      metric_figure("/ (T(n)/T(1)", "t_ratio", 3, &ReportRow::why, &SpeedReasons::t_ratio),
      metric_figure("+ draft", "draft_share", 3, &ReportRow::why, &SpeedReasons::draft_share),
      metric_figure("+ overhead)", "overhead", 3, &ReportRow::why, &SpeedReasons::overhead),
      {metric_column("residual", "residual"),
       [](const ReportRow& r) { return percent(r.why.residual, 1); }},
      metric_figure("rows/step", "rows_per_step", 2, &ReportRow::acceptance,
                    &Acceptance::rows_per_step, Room::kPage),
      {metric_column("alpha_cond by depth", "alpha_cond", Room::kPage), [](const ReportRow& r) {
         std::string depths;
         constexpr size_t kShown = 6;
         for (size_t d = 0; d < std::min(kShown, r.acceptance.by_depth.size()); ++d)
           depths += fmt::format("{}{}", d > 0 ? " " : "",
                                 number(r.acceptance.by_depth[d].conditional, 2));
         if (r.acceptance.by_depth.size() > kShown) depths += " ...";
         return depths.empty() ? "-" : depths;
       }}};
  if (std::any_of(all.begin(), all.end(),
                  [](const ReportRow* r) { return r->why.bandwidth.has_value(); }))
    c.push_back({{.name = "bandwidth", .room = Room::kPage},
                 [](const ReportRow& r) { return percent(r.why.bandwidth, 0); }});
  Table t = table_of_rows(c, rows);
  t.parts = rows.batches;  // the explanation holds for lossy methods as well
  t.caption = "What explains the speedup: tau over the cost of a step, in plain steps.";
  return t;
}

}  // namespace evalrun::reports
