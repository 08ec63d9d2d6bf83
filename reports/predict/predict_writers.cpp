#include <fmt/format.h>

#include <algorithm>

#include "reports/document/records.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/predict/predict_report.h"

namespace evalrun::reports {

bool is_best(const Prediction& row, const std::vector<Prediction>& rows) {
  return row.speedup && std::none_of(rows.begin(), rows.end(), [&](const Prediction& other) {
           return other.arm == row.arm && other.batch == row.batch && other.speedup &&
                  other.speedup->value > row.speedup->value;
         });
}

namespace {

Cell estimate(const std::optional<Estimate>& e) {
  return e ? figure_cell(e->value, e->interval, e->n_eff, 2) : "-";
}

std::optional<double> value_of(const std::optional<Estimate>& e) {
  return e ? std::optional(e->value) : std::nullopt;
}

std::string both(double predicted, double measured, int decimals) {
  return fmt::format("{} / {}", number(predicted, decimals), number(measured, decimals));
}

void add_predictions(const PredictReport& report, Document& d) {
  const std::vector<Prediction>& rows = report.predictions;
  const bool batches =
      std::any_of(rows.begin(), rows.end(), [](const Prediction& p) { return p.batch != 1; });
  Table t{.columns = {{.name = "method", .words = true}, {.name = "draft", .words = true}}};
  if (batches) t.columns.push_back({.name = "batch"});
  for (const char* h : {"tau(+bonus)", "rows", "T(n)/T(1)", "draft time", "overhead"})
    t.columns.push_back({.name = h});
  t.columns.push_back({.name = "speedup [95 %]"});
  t.columns.push_back({.name = "", .words = true});
  bool few = false;
  for (const Prediction& p : rows) {
    few = few || (p.speedup && p.speedup->n_eff < kIndicativeBelow);
    std::vector<Cell> row = {p.arm, p.draft};
    if (batches) row.emplace_back(fmt::format("{}", p.batch));
    for (const std::string& cell :
         {number(value_of(p.tau), 3), number(p.rows, 2), number(p.t_ratio, 2),
          number(p.draft_share, 3), number(p.overhead, 3)})
      row.emplace_back(cell);
    row.push_back(estimate(p.speedup));
    row.emplace_back(is_best(p, rows) ? "best" : "");
    t.rows.push_back(std::move(row));
  }
  t.caption = fmt::format(
      "Predicted speedup of other drafts, from stored steps{}.",
      report.shape.empty() ? "" : ", at T(n) of random weights in the shape of " + report.shape);
  d.table(std::move(t));
  d.paragraph(fmt::format(
      "Speedup = tau / (T(n)/T(1) + draft time + overhead), each in plain steps; rows of a step "
      "are a mean. The interval is for new prompts and holds no error of the prediction: "
      "--confirm RUN measures that.{}",
      few ? fmt::format(" *: {}.", kIndicative) : ""));
}

void add_confirmations(const PredictReport& report, Document& d) {
  const Confirmations& c = *report.confirmations;
  Table t{.columns = {{.name = "measured arm", .words = true},
                      {.name = "predicted from", .words = true},
                      {.name = "prompts"},
                      {.name = "tau"},
                      {.name = "T(n)/T(1)"},
                      {.name = "draft time"},
                      {.name = "predicted"},
                      {.name = "measured [95 %]"},
                      {.name = "error"}}};
  for (const Confirmation& x : c.rows)
    t.rows.push_back({x.arm, x.predicted.arm, fmt::format("{}", x.n_prompts),
                      both(x.predicted.tau->value, x.measured.tau->value, 3),
                      both(x.predicted.t_ratio, x.measured.t_ratio, 2),
                      both(x.predicted.draft_share, x.measured.draft_share, 3),
                      number(x.predicted.speedup->value, 2), estimate(x.measured.speedup),
                      fmt::format("{}{}", x.error() > 0 ? "+" : "", percent(x.error(), 1))});
  t.caption = "Speedup predicted from stored steps, and measured.";
  d.table(std::move(t));
  d.paragraph(
      fmt::format("Median error {} over {} configurations measured by {}; a / b: predicted and "
                  "measured.",
                  percent(c.median_error(), 1), c.rows.size(), run_title(*report.confirmed_by)));
  for (const std::string& left : c.left_out) d.paragraph(fmt::format("Left out: {}", left));
}

// Rows are depths, columns ranks.
Table places_table(const TreePlaces& p) {
  int ranks = 0, depths = 0;
  for (const auto& [place, counted] : p.count) {
    depths = std::max(depths, place.first);
    ranks = std::max(ranks, place.second + 1);
  }
  Table t{.columns = {{.name = "hit rate (tested)", .words = true}}};
  for (int rank = 0; rank < ranks; ++rank)
    t.columns.push_back(
        {.name = fmt::format("rank {}", rank), .room = rank < 4 ? Room::kAlways : Room::kWide});
  for (int depth = 1; depth <= depths; ++depth) {
    t.rows.push_back({fmt::format("depth {}", depth)});
    for (int rank = 0; rank < ranks; ++rank) {
      const auto found = p.count.find({depth, rank});
      t.rows.back().emplace_back(found == p.count.end()
                                     ? "-"
                                     : fmt::format("{} ({})", number(found->second.share(), 3),
                                                   count(found->second.tested)));
    }
  }
  return t;
}

void add_trees(const TreeReport& r, const PredictReport& report, Document& d) {
  Table t{.columns = {{.name = "nodes"},
                      {.name = "last path"},
                      {.name = "gain in tau"},
                      {.name = "tau chosen on", .room = Room::kPage},
                      {.name = "tau"},
                      {.name = "T(n)/T(1)"},
                      {.name = "speedup [95 %]"},
                      {.name = "", .words = true}}};
  std::vector<Prediction> rows;
  for (const BestTree& b : r.trees) rows.push_back(b.others);
  const BestTree* best = nullptr;
  for (const BestTree& b : r.trees) {
    if (is_best(b.others, rows)) best = &b;
    t.rows.push_back({fmt::format("{}", b.tree.size()),
                      fmt::format("{}", fmt::join(b.tree.back(), ".")), number(b.gain, 3),
                      number(b.tau_chosen_on, 3), number(value_of(b.others.tau), 3),
                      number(b.others.t_ratio, 2), estimate(b.others.speedup),
                      is_best(b.others, rows) ? "best" : ""});
  }
  t.caption = fmt::format("{}: trees of the likeliest paths.", r.arm);
  d.table(std::move(t));
  d.paragraph(
      fmt::format("Trees of the likeliest paths, chosen on {} prompts, predicted for {} others "
                  "(tau, T(n)/T(1), speedup).",
                  r.chosen_on, r.scored_on));
  if (best != nullptr && report.tree_text)
    d.paragraph(fmt::format("Best: tree={}", report.tree_text(best->tree)));
}

void add_tree_report(const TreeReport& r, const PredictReport& report, Document& d) {
  d.paragraph(fmt::format(
      "{}: {} draft nodes in {} steps; {} tested and accepted, {} tested and refused, {} never "
      "tested (wasted: {})",
      r.arm, count(r.places.drafted), count(r.steps), count(r.places.accepted),
      count(r.places.tested - r.places.accepted), count(r.places.drafted - r.places.tested),
      percent(r.places.drafted > 0 ? 1 - r.places.accepted / r.places.drafted : 0, 1)));
  if (!r.places.count.empty()) {
    Table t = places_table(r.places);
    t.caption = fmt::format("{}: accepted over tested by place in the tree.", r.arm);
    d.table(std::move(t));
  }
  if (!r.no_trees.empty()) return d.paragraph(fmt::format("No trees: {}.", r.no_trees));
  add_trees(r, report, d);
}

Json predict_run_json(const RunInfo& r) {
  return {{"run", r.id}, {"label", r.label}, {"commit", r.commit}, {"started", r.started}};
}

void add_estimate(Json& object, const std::string& name, const std::optional<Estimate>& e) {
  object[name] = e ? Json(e->value) : Json();
  object[name + "_lo"] = e && e->interval ? Json(e->interval->lo) : Json();
  object[name + "_hi"] = e && e->interval ? Json(e->interval->hi) : Json();
  object[name + "_n_eff"] = e ? Json(e->n_eff) : Json();
}

Json prediction_json(const Prediction& p) {
  Json object{{"method", p.arm},
              {"draft", p.draft},
              {"batch", p.batch},
              {"n_prompts", p.n_prompts},
              {"rows", p.rows},
              {"t_ratio", p.t_ratio},
              {"draft_share", p.draft_share},
              {"overhead", p.overhead}};
  add_estimate(object, "tau", p.tau);
  add_estimate(object, "speedup", p.speedup);
  return object;
}

Json predictions_json(const PredictReport& r) {
  Json rows = Json::array();
  for (const Prediction& p : r.predictions) {
    rows.push_back(prediction_json(p));
    rows.back()["best"] = is_best(p, r.predictions);
    rows.back()["shape"] = r.shape.empty() ? Json() : Json(r.shape);
  }
  return rows;
}

Json confirmations_json(const Confirmations& confirmations) {
  Json rows = Json::array();
  for (const Confirmation& c : confirmations.rows)
    rows.push_back({{"method", c.arm},
                    {"n_prompts", c.n_prompts},
                    {"predicted", prediction_json(c.predicted)},
                    {"measured", prediction_json(c.measured)},
                    {"error", c.error()}});
  return rows;
}

Json tree_json(const TreeReport& r, const PredictReport& report) {
  Json places = Json::array(), trees = Json::array();
  for (const auto& [place, n] : r.places.count)
    places.push_back({{"depth", place.first},
                      {"rank", place.second},
                      {"tested", n.tested},
                      {"accepted", n.accepted},
                      {"share", n.share()}});
  for (const BestTree& b : r.trees)
    trees.push_back({{"nodes", b.tree.size()},
                     {"tree", report.tree_text ? Json(report.tree_text(b.tree)) : Json()},
                     {"gain", b.gain},
                     {"tau_chosen_on", b.tau_chosen_on},
                     {"predicted", prediction_json(b.others)}});
  return {{"method", r.arm},
          {"steps", r.steps},
          {"drafted", r.places.drafted},
          {"tested", r.places.tested},
          {"accepted", r.places.accepted},
          {"places", places},
          {"prompts_chosen_on", r.chosen_on},
          {"prompts_scored_on", r.scored_on},
          {"trees", trees},
          {"no_trees", r.no_trees}};
}

}  // namespace

Document document(const PredictReport& r) {
  Document d{.name = "predict"};
  d.paragraph(fmt::format("From the stored steps of {}; nothing was run.", run_title(r.run)));
  if (r.confirmations) add_confirmations(r, d);
  if (!r.predictions.empty()) add_predictions(r, d);
  for (const TreeReport& t : r.trees) add_tree_report(t, r, d);
  if (!r.acceptance.empty()) add_acceptance(r.acceptance, d);
  if (r.oracle) add_oracle(*r.oracle, d);
  for (const std::string& note : r.notes) d.paragraph(fmt::format("Note: {}", note));
  if (r.confirmations)
    d.data = records(confirmations_json(*r.confirmations));
  else if (!r.predictions.empty())
    d.data = records(predictions_json(r));
  else if (r.oracle)
    d.data = records(oracle_json(*r.oracle)["rows"]);
  return d;
}

std::string to_json(const PredictReport& r) {
  Json all{{"run", predict_run_json(r.run)}, {"predictions", predictions_json(r)}};
  if (r.confirmations) {
    all["confirmed"] = {{"by", predict_run_json(*r.confirmed_by)},
                        {"rows", confirmations_json(*r.confirmations)},
                        {"median_error", *r.confirmations->median_error()},
                        {"left_out", r.confirmations->left_out}};
  }
  if (!r.trees.empty()) {
    all["trees"] = Json::array();
    for (const TreeReport& t : r.trees) all["trees"].push_back(tree_json(t, r));
  }
  if (!r.acceptance.empty()) all["acceptance"] = acceptance_json(r.acceptance);
  if (r.oracle) all["oracle"] = oracle_json(*r.oracle);
  all["notes"] = r.notes;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
