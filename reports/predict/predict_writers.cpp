#include <fmt/format.h>

#include <algorithm>

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

std::string estimate(const std::optional<Estimate>& e, int n_prompts) {
  return e ? with_interval(e->value, e->interval, n_prompts, 2) : "-";
}

std::optional<double> value_of(const std::optional<Estimate>& e) {
  return e ? std::optional(e->value) : std::nullopt;
}

std::string both(double predicted, double measured, int decimals) {
  return fmt::format("{} / {}", number(predicted, decimals), number(measured, decimals));
}

class Writer {
 public:
  Writer(const PredictReport& report, bool markdown) : report_(report), markdown_(markdown) {}

  std::string write() {
    const RunInfo& run = report_.run;
    line(fmt::format("From the stored steps of {}; nothing was run.", name_of(run)));
    if (report_.confirmations) confirmations(*report_.confirmations);
    if (!report_.predictions.empty()) predictions();
    for (const TreeReport& t : report_.trees) tree(t);
    for (const std::string& note : report_.notes) line(fmt::format("Note: {}", note));
    return std::move(out_);
  }

 private:
  static std::string name_of(const RunInfo& run) {
    return fmt::format("run {}{}", run.id,
                       run.label.empty() ? "" : fmt::format(" '{}'", run.label));
  }
  void line(const std::string& s) {
    out_ += markdown_ ? fmt::format("{}\n\n", escape_markdown(s)) : fmt::format("{}\n", s);
  }
  void table(const Table& t) { out_ += (markdown_ ? t.markdown() : t.text()) + "\n"; }

  void predictions() {
    const std::vector<Prediction>& rows = report_.predictions;
    const bool batches =
        std::any_of(rows.begin(), rows.end(), [](const Prediction& p) { return p.batch != 1; });
    Table t;
    t.header = {"method",    "draft",      "batch",    "tau(+bonus)",    "rows",
                "T(n)/T(1)", "draft time", "overhead", "speedup [95 %]", ""};
    t.text_from = t.header.size() - 1;
    bool few = false;
    for (const Prediction& p : rows) {
      few = few || p.n_prompts < kIndicativeBelow;
      t.rows.push_back({p.arm, p.draft, fmt::format("{}", p.batch), number(value_of(p.tau), 3),
                        number(p.rows, 2), number(p.t_ratio, 2), number(p.draft_share, 3),
                        number(p.overhead, 3), estimate(p.speedup, p.n_prompts),
                        is_best(p, rows) ? "best" : ""});
    }
    if (!batches) {
      t.header.erase(t.header.begin() + 2);
      for (auto& row : t.rows) row.erase(row.begin() + 2);
      --t.text_from;
    }
    table(t);
    line(fmt::format(
        "Speedup = tau / (T(n)/T(1) + draft time + overhead), each in plain steps; rows of a step "
        "are a mean. The interval is for new prompts and holds no error of the prediction: "
        "--confirm RUN measures that.{}",
        few ? " * fewer than 30 prompts: indicative only." : ""));
  }

  void confirmations(const Confirmations& c) {
    Table t;
    t.header = {"measured arm", "predicted from", "prompts",         "tau",  "T(n)/T(1)",
                "draft time",   "predicted",      "measured [95 %]", "error"};
    for (const Confirmation& x : c.rows)
      t.rows.push_back({x.arm, x.predicted.arm, fmt::format("{}", x.n_prompts),
                        both(x.predicted.tau->value, x.measured.tau->value, 3),
                        both(x.predicted.t_ratio, x.measured.t_ratio, 2),
                        both(x.predicted.draft_share, x.measured.draft_share, 3),
                        number(x.predicted.speedup->value, 2),
                        estimate(x.measured.speedup, x.n_prompts),
                        fmt::format("{}{}", x.error() > 0 ? "+" : "", percent(x.error(), 1))});
    table(t);
    line(
        fmt::format("Median error {} over {} configurations measured by {}; a / b: predicted and "
                    "measured.",
                    percent(c.median_error(), 1), c.rows.size(), name_of(*report_.confirmed_by)));
    for (const std::string& left : c.left_out) line(fmt::format("Left out: {}", left));
  }

  void tree(const TreeReport& r) {
    line(fmt::format(
        "{}: {} draft nodes in {} steps; {} tested and accepted, {} tested and refused, {} never "
        "tested (wasted: {})",
        r.arm, count(r.places.drafted), count(r.steps), count(r.places.accepted),
        count(r.places.tested - r.places.accepted), count(r.places.drafted - r.places.tested),
        percent(r.places.drafted > 0 ? 1 - r.places.accepted / r.places.drafted : 0, 1)));
    if (!r.places.count.empty()) places(r.places);
    if (!r.no_trees.empty()) return line(fmt::format("No trees: {}.", r.no_trees));
    best_trees(r);
  }

  // Rows are depths, columns ranks.
  void places(const TreePlaces& p) {
    int ranks = 0, depths = 0;
    for (const auto& [place, counted] : p.count) {
      depths = std::max(depths, place.first);
      ranks = std::max(ranks, place.second + 1);
    }
    Table t;
    t.header = {"hit rate (tested)"};
    for (int rank = 0; rank < ranks; ++rank) t.header.push_back(fmt::format("rank {}", rank));
    for (int depth = 1; depth <= depths; ++depth) {
      t.rows.push_back({fmt::format("depth {}", depth)});
      for (int rank = 0; rank < ranks; ++rank) {
        const auto found = p.count.find({depth, rank});
        t.rows.back().push_back(found == p.count.end()
                                    ? "-"
                                    : fmt::format("{} ({})", number(found->second.share(), 3),
                                                  count(found->second.tested)));
      }
    }
    table(t);
  }

  void best_trees(const TreeReport& r) {
    Table t;
    t.header = {"nodes", "last path", "gain in tau",    "tau chosen on",
                "tau",   "T(n)/T(1)", "speedup [95 %]", ""};
    t.text_from = t.header.size() - 1;
    std::vector<Prediction> rows;
    for (const BestTree& b : r.trees) rows.push_back(b.others);
    const BestTree* best = nullptr;
    for (const BestTree& b : r.trees) {
      if (is_best(b.others, rows)) best = &b;
      t.rows.push_back({fmt::format("{}", b.tree.size()),
                        fmt::format("{}", fmt::join(b.tree.back(), ".")), number(b.gain, 3),
                        number(b.tau_chosen_on, 3), number(value_of(b.others.tau), 3),
                        number(b.others.t_ratio, 2), estimate(b.others.speedup, b.others.n_prompts),
                        is_best(b.others, rows) ? "best" : ""});
    }
    table(t);
    line(
        fmt::format("Trees of the likeliest paths, chosen on {} prompts, predicted for {} others "
                    "(tau, T(n)/T(1), speedup).",
                    r.chosen_on, r.scored_on));
    if (best != nullptr && report_.tree_text)
      line(fmt::format("Best: tree={}", report_.tree_text(best->tree)));
  }

  const PredictReport& report_;
  const bool markdown_;
  std::string out_;
};

Json predicted_run_json(const RunInfo& r) {
  return {{"run", r.id}, {"label", r.label}, {"commit", r.commit}, {"started", r.started}};
}

void add_estimate(Json& object, const std::string& name, const std::optional<Estimate>& e) {
  object[name] = e ? Json(e->value) : Json();
  object[name + "_lo"] = e && e->interval ? Json(e->interval->lo) : Json();
  object[name + "_hi"] = e && e->interval ? Json(e->interval->hi) : Json();
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

std::string to_markdown(const PredictReport& r) { return Writer(r, true).write(); }
std::string to_text(const PredictReport& r) { return Writer(r, false).write(); }

std::string to_json(const PredictReport& r) {
  Json all{{"run", predicted_run_json(r.run)}, {"predictions", Json::array()}};
  for (const Prediction& p : r.predictions) {
    all["predictions"].push_back(prediction_json(p));
    all["predictions"].back()["best"] = is_best(p, r.predictions);
  }
  if (r.confirmations) {
    Json rows = Json::array();
    for (const Confirmation& c : r.confirmations->rows)
      rows.push_back({{"method", c.arm},
                      {"n_prompts", c.n_prompts},
                      {"predicted", prediction_json(c.predicted)},
                      {"measured", prediction_json(c.measured)},
                      {"error", c.error()}});
    all["confirmed"] = {{"by", predicted_run_json(*r.confirmed_by)},
                        {"rows", rows},
                        {"median_error", *r.confirmations->median_error()},
                        {"left_out", r.confirmations->left_out}};
  }
  if (!r.trees.empty()) {
    all["trees"] = Json::array();
    for (const TreeReport& t : r.trees) all["trees"].push_back(tree_json(t, r));
  }
  all["notes"] = r.notes;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
