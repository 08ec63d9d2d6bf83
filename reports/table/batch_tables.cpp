#include "reports/table/batch_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/units.h"
#include "reports/format.h"
#include "reports/table/length_table.h"
#include "reports/table/run_text.h"

namespace evalrun::reports {

namespace {

using BatchRows = std::vector<const ReportRow*>;

struct BatchColumn {
  Column column;
  std::function<Cell(const ReportRow&)> cell;
};

Column batch_column(std::string name, Room room = Room::kAlways) {
  return {.name = std::move(name), .room = room, .link = "docs/measurement.md#batches-in-reports"};
}

// Methods in their order, each at all its sizes; the A/A arms are left out.
BatchRows batch_rows(const Report& report, const std::string& dataset) {
  std::vector<std::string> methods;
  BatchRows rows;
  for (const ReportRow& r : report.rows) {
    if (r.dataset != dataset || !r.batch || r.arm.role == "aa") continue;
    rows.push_back(&r);
    const std::string method = label_without_batch(r.arm);
    if (std::find(methods.begin(), methods.end(), method) == methods.end())
      methods.push_back(method);
  }
  const auto place = [&](const ReportRow* r) {
    return std::pair(
        std::find(methods.begin(), methods.end(), label_without_batch(r->arm)) - methods.begin(),
        r->arm.batch);
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const ReportRow* a, const ReportRow* b) { return place(a) < place(b); });
  return rows;
}

Table batch_table(const std::vector<BatchColumn>& columns, const BatchRows& rows) {
  Table t;
  for (const BatchColumn& c : columns) t.columns.push_back(c.column);
  for (const ReportRow* r : rows) {
    // A line between methods, where there is one.
    if (!t.rows.empty() && t.rows.back()[0].text != label_without_batch(r->arm))
      t.parts[t.rows.size()] = "";
    t.rows.emplace_back();
    for (const BatchColumn& c : columns) t.rows.back().push_back(c.cell(*r));
  }
  return t;
}

std::vector<BatchColumn> name_and_size() {
  return {{{.name = "method", .words = true},
           [](const ReportRow& r) { return Cell(label_without_batch(r.arm)); }},
          {batch_column("batch"),
           [](const ReportRow& r) { return Cell(fmt::format("{}", r.arm.batch)); }}};
}

Cell estimate_cell(const std::optional<Estimate>& e, int decimals) {
  return e ? figure_cell(e->value, e->interval, e->n_eff, decimals) : Cell("-");
}

template <typename Has>
bool any_of_rows(const BatchRows& rows, const Has& has) {
  return std::any_of(rows.begin(), rows.end(), [&](const ReportRow* r) { return has(*r); });
}

Table throughput_table(const BatchRows& rows) {
  std::vector<BatchColumn> c = name_and_size();
  const auto add = [&](Column column, std::function<Cell(const ReportRow&)> cell) {
    c.push_back({std::move(column), std::move(cell)});
  };
  add(batch_column("tok/s [95 %]"),
      [](const ReportRow& r) { return estimate_cell(r.batch->tok_s, 1); });
  add(batch_column("speedup [95 %]"), [](const ReportRow& r) {
    return figure_cell(r.speed.speedup, r.speed.interval, r.speed.n_eff, 2);
  });
  if (any_of_rows(rows, [](const ReportRow& r) { return r.batch->predicted.has_value(); }))
    add(batch_column("predicted"),
        [](const ReportRow& r) { return estimate_cell(r.batch->predicted, 2); });
  if (any_of_rows(rows, [](const ReportRow& r) { return r.batch->over_alone.has_value(); }))
    add(batch_column("over batch 1 [95 %]"),
        [](const ReportRow& r) { return estimate_cell(r.batch->over_alone, 2); });
  add(batch_column("tau", Room::kSpare),
      [](const ReportRow& r) { return Cell(number(r.acceptance.tau, 3)); });
  add(batch_column("T(Bn)/T(B)"),
      [](const ReportRow& r) { return Cell(number(r.batch->step_ratio, 3)); });
  add(batch_column("step ms", Room::kPage),
      [](const ReportRow& r) { return Cell(number(r.batch->step_ms, 2)); });
  add(batch_column("members", Room::kPage),
      [](const ReportRow& r) { return Cell(number(r.batch->members, 2)); });
  add(batch_column("rows", Room::kPage),
      [](const ReportRow& r) { return Cell(number(r.batch->rows, 2)); });
  if (any_of_rows(rows,
                  [](const ReportRow& r) { return r.batch->same_as_alone.share.has_value(); }))
    add(batch_column("same as batch 1", Room::kPage), [](const ReportRow& r) {
      const SameTokens& same = r.batch->same_as_alone;
      const bool broken = same.share && *same.share < 1 && promises_tokens(r.arm);
      return Cell(percent(same.share, 1), broken ? Style::kBad : Style::kPlain);
    });
  Table t = batch_table(c, rows);
  t.caption =
      "Throughput by batch size: decoded tokens per second of the whole batch; speedup over plain "
      "decoding of the same batch, and over plain decoding of one prompt at a time; steps in which "
      "every place was taken, and the same over plain decoding's, T(Bn)/T(B); sequences and rows "
      "of "
      "a mean step.";
  return t;
}

std::string percentiles_text(const std::optional<Percentiles>& p, bool with_p99) {
  if (!p) return "-";
  const std::string text = number(p->p50, 1) + " / " + number(p->p95, 1);
  return with_p99 ? text + " / " + number(p->p99, 1) : text;
}

Table latency_table(const BatchRows& rows) {
  std::vector<BatchColumn> c = name_and_size();
  const auto add = [&](Column column, std::function<Cell(const ReportRow&)> cell) {
    c.push_back({std::move(column), std::move(cell)});
  };
  add(batch_column("TTFT p50 / p95"),
      [](const ReportRow& r) { return Cell(percentiles_text(r.batch->first_token_ms, false)); });
  add(batch_column("TPOT p50 / p95 / p99"),
      [](const ReportRow& r) { return Cell(percentiles_text(r.batch->per_token_ms, true)); });
  add(batch_column("ITL p50 / p95 / p99"),
      [](const ReportRow& r) { return Cell(percentiles_text(r.batch->gap_ms, true)); });
  add(batch_column("longest stall"),
      [](const ReportRow& r) { return Cell(number(r.batch->longest_gap_ms, 1)); });
  add(batch_column("front"),
      [](const ReportRow& r) { return Cell(r.batch->on_front ? "yes" : "-"); });
  if (any_of_rows(rows, [](const ReportRow& r) { return r.energy.has_value(); }))
    add(batch_column("J/token", Room::kPage), [](const ReportRow& r) {
      const bool known = r.energy && r.energy->joules_per_token;
      return known ? Cell(number(r.energy->joules_per_token->value, 3)) : Cell("-");
    });
  add(batch_column("KV", Room::kPage), [](const ReportRow& r) {
    return Cell(r.arm.kv_bytes > 0 ? base::format_bytes(r.arm.kv_bytes) : "-");
  });
  Table t = batch_table(c, rows);
  t.caption =
      "Milliseconds that a sequence waits: for its first token (TTFT), for each further one (TPOT, "
      "a mean of the sequence), between two tokens, a step's gap spread over its tokens (ITL), and "
      "at most between two steps (longest stall). Front: no other lossless arm has more tokens per "
      "second at no longer TPOT.";
  return t;
}

Table crossover_table(const BatchRows& rows) {
  Table t{.columns = {{.name = "method", .words = true},
                      batch_column("faster than plain decoding up to batch [95 %]")}};
  std::set<std::string> known;
  for (const ReportRow* r : rows) {
    const std::string method = label_without_batch(r->arm);
    if (!r->batch->crossover || !known.insert(method).second) continue;
    const Crossover& x = *r->batch->crossover;
    Cell cell(x.at.text());
    if (x.lo && x.hi) cell.range = fmt::format("[{}, {}]", x.lo->text(), x.hi->text());
    cell.indicative = x.lo && x.n_eff < kIndicativeBelow;
    if (x.crossings > 1) cell.remark = fmt::format("crosses 1 {} times", x.crossings);
    t.rows.push_back({method, cell});
  }
  t.caption =
      "Crossover: the largest batch with a speedup over plain decoding of the same batch above 1, "
      "between measured sizes on a line of logarithms.";
  return t;
}

// "+1.3 %", with its interval: how far a ratio is from 1.
Cell change_cell(const std::optional<Estimate>& ratio) {
  if (!ratio) return "-";
  const auto text = [](double r) { return fmt::format("{:+.1f}", 100 * (r - 1)); };
  Cell cell(text(ratio->value) + " %");
  if (ratio->interval)
    cell.range = fmt::format("[{}, {}]", text(ratio->interval->lo), text(ratio->interval->hi));
  cell.indicative = ratio->interval && ratio->n_eff < kIndicativeBelow;
  return cell;
}

Table undrafted_table(const BatchRows& rows) {
  std::vector<BatchColumn> c = name_and_size();
  c.push_back({batch_column("steps without a draft"), [](const ReportRow& r) {
                 return Cell(count(static_cast<double>(r.batch->undrafted_steps)));
               }});
  c.push_back({batch_column("speculation on, nothing drafted [95 %]"),
               [](const ReportRow& r) { return change_cell(r.batch->undrafted_ratio); }});
  BatchRows shown;
  for (const ReportRow* r : rows)
    if (r->batch->undrafted_ratio) shown.push_back(r);
  Table t = batch_table(c, shown);
  t.caption =
      "Speculation on, nothing drafted: measured time of steps without a draft, over that of plain "
      "decoding's steps of the same batch at the same prompts and contexts.";
  return t;
}

Table beside_cost_table(const BatchRows& rows) {
  Table t{.columns = {batch_column("batch"),
                      batch_column("plain step ms (p50)"),
                      batch_column("T(B) ms"),
                      batch_column("ratio"),
                      {.name = "T(B) from", .words = true, .room = Room::kPage}}};
  for (const ReportRow* r : rows) {
    if (!r->batch->beside_cost) continue;
    const StepBesideCost& c = *r->batch->beside_cost;
    t.rows.push_back({fmt::format("{}", r->arm.batch), number(c.step_ms, 2), number(c.table_ms, 2),
                      number(c.ratio(), 3),
                      c.own_table ? "its own table" : "B rows of one sequence"});
  }
  t.caption =
      "A step of plain decoding beside evalrun cost: median of the measured steps in which every "
      "place was taken, and T(B) of the run's own table of row costs.";
  return t;
}

void add_step_costs(const BatchRows& rows, const std::string& dataset, Document& d) {
  if (Table t = beside_cost_table(rows); !t.rows.empty()) {
    t.label = dataset + "-step-cost";
    d.table(std::move(t));
    d.paragraph(
        "A step of plain decoding beside evalrun cost: the median of measured steps with every "
        "place taken, and T(B), one row for each of B sequences, as the run measured it before its "
        "first token. The steps have the contexts of the prompts, the table has one.");
  }
  if (Table t = undrafted_table(rows); !t.rows.empty()) {
    t.label = dataset + "-undrafted";
    d.table(std::move(t));
    d.paragraph(fmt::format(
        "speculation on, nothing drafted: measured steps of the method in which no member had a "
        "draft, against plain decoding's steps of the same batch and prompt, at contexts at most "
        "{} tokens apart; whole steps, with looking for a draft in them.",
        UndraftedSteps::kNear));
  }
}

std::string sizes_text(const BatchRows& rows) {
  std::set<int64_t> sizes;
  std::string mode;
  for (const ReportRow* r : rows) {
    sizes.insert(r->arm.batch);
    if (r->arm.batch > 1) mode = batch_mode(r->arm);
  }
  const char* how = mode == "continuous"
                        ? "continuous: a sequence that has ended makes room for the next one"
                        : "static: all sequences of a batch start together, and it ends with the "
                          "last one";
  return fmt::format("Sequences decoded together: {}; {}.", fmt::join(sizes, ", "), how);
}

}  // namespace

void add_batches(const Report& report, const std::string& dataset, Document& d) {
  const BatchRows rows = batch_rows(report, dataset);
  if (rows.empty()) return;
  d.heading(fmt::format("batches, {}", dataset_name(dataset)));
  d.paragraph(sizes_text(rows));
  Table throughput = throughput_table(rows), latency = latency_table(rows);
  throughput.label = dataset + "-batches", latency.label = dataset + "-latency";
  d.table(std::move(throughput));
  d.paragraph(
      "tok/s is the whole batch's, speedup over plain decoding of the same batch. Prompts that "
      "were decoded together count as one unit of an interval.");
  if (any_of_rows(rows, [](const ReportRow& r) { return r.batch->predicted.has_value(); }))
    d.paragraph(
        "predicted: from the steps at batch 1 and what rows cost before the run, without a step at "
        "this batch (evalrun predict --batch).");
  if (Table t = crossover_table(rows); !t.rows.empty()) {
    t.label = dataset + "-crossover";
    d.table(std::move(t));
  }
  d.table(std::move(latency));
  d.paragraph(
      "Times in milliseconds, as the sequences waited. front: no other lossless arm gives more "
      "tokens per second at no longer TPOT (p50).");
  add_step_costs(rows, dataset, d);
  add_draft_lengths(rows, dataset, d);
}

}  // namespace evalrun::reports
