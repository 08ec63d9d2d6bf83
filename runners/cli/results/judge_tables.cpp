#include "runners/cli/results/judge_tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using runners::Grades;
using runners::PairTally;

std::string mean_text(const std::vector<double>& x) {
  return x.empty() ? "-" : fmt::format("{:.2f}", base::mean(x));
}

Json mean_json(const std::vector<double>& x) { return x.empty() ? Json() : Json(base::mean(x)); }

// Of an arm, from the baseline; absent for the baseline itself.
std::optional<base::MeanInterval> difference_of(const GradeTables& t, const std::string& arm) {
  if (arm == t.baseline || !t.arms.contains(t.baseline)) return std::nullopt;
  return runners::grade_difference(t.arms.at(arm), t.arms.at(t.baseline));
}

std::string arms_text(const GradeTables& t) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& label : t.labels) {
    const Grades& g = t.arms.at(label);
    std::string against = "-";
    if (const auto d = difference_of(t, label))
      against = fmt::format("{:+.3f} [{:+.3f}, {:+.3f}]", d->mean, d->interval.lo, d->interval.hi);
    rows.push_back({label, std::to_string(g.questions), mean_text(g.turn[0]), mean_text(g.turn[1]),
                    mean_text(g.all), against, std::to_string(g.without_rating),
                    std::to_string(g.incomplete)});
  }
  return aligned_table({"arm", "questions", "turn 1", "turn 2", "mean",
                        "difference to " + t.baseline + " [95 %]", "no rating", "open"},
                       rows);
}

std::string categories_text(const GradeTables& t) {
  std::set<std::string> categories;
  for (const std::string& label : t.labels)
    for (const auto& [category, grades] : t.arms.at(label).by_category) categories.insert(category);
  std::vector<std::string> header = {"category"};
  header.insert(header.end(), t.labels.begin(), t.labels.end());
  std::vector<std::vector<std::string>> rows;
  for (const std::string& category : categories) {
    std::vector<std::string> row = {category.empty() ? "-" : category};
    for (const std::string& label : t.labels) {
      const auto& by = t.arms.at(label).by_category;
      const auto it = by.find(category);
      row.push_back(it == by.end() ? "-" : mean_text(it->second));
    }
    rows.push_back(std::move(row));
  }
  return aligned_table(header, rows);
}

Json tally_json(const std::string& category, const PairTally& t) {
  return {{"category", category}, {"win", t.win},   {"tie", t.tie},
          {"lose", t.lose},       {"none", t.none}, {"identical", t.identical},
          {"open", t.open}};
}

}  // namespace

std::string GradeTables::text() const { return arms_text(*this) + "\n\n" + categories_text(*this); }

Json GradeTables::json() const {
  Json out = Json::array();
  for (const std::string& label : labels) {
    const Grades& g = arms.at(label);
    Json by_category = Json::object();
    for (const auto& [category, grades] : g.by_category) by_category[category] = mean_json(grades);
    Json arm{{"arm", label},
             {"questions", g.questions},
             {"turn_1", mean_json(g.turn[0])},
             {"turn_2", mean_json(g.turn[1])},
             {"mean", mean_json(g.all)},
             {"no_rating", g.without_rating},
             {"open", g.incomplete},
             {"by_category", by_category}};
    if (const auto d = difference_of(*this, label))
      arm["difference"] = {{"mean", d->mean}, {"lo", d->interval.lo}, {"hi", d->interval.hi}};
    out.push_back(std::move(arm));
  }
  return out;
}

void PairTables::add(const runners::JudgedPair& pair) {
  all.add(pair);
  by_category[pair.category].add(pair);
}

std::string PairTables::text() const {
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const std::string& name, const PairTally& t) {
    std::vector<std::string> cells = {name};
    for (const int n : {t.win, t.tie, t.lose, t.identical, t.none, t.open})
      cells.push_back(std::to_string(n));
    rows.push_back(std::move(cells));
  };
  row("all", all);
  for (const auto& [category, tally] : by_category)
    if (!category.empty()) row(category, tally);
  return aligned_table(
      {"turns of", "A wins", "tie", "A loses", "identical (ties)", "no verdict", "open"}, rows);
}

Json PairTables::overall_json() const { return tally_json("", all); }

Json PairTables::by_category_json() const {
  Json rows = Json::array();
  for (const auto& [category, tally] : by_category) rows.push_back(tally_json(category, tally));
  return rows;
}

}  // namespace evalrun::cli
