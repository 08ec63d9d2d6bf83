#include "runners/cli/results/judge_tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/base/stats.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using reports::ControlDifference;
using runners::Grades;
using runners::PairTally;

std::string mean_text(const std::vector<double>& x) {
  return x.empty() ? "-" : fmt::format("{:.2f}", base::mean(x));
}

Json mean_json(const std::vector<double>& x) { return x.empty() ? Json() : Json(base::mean(x)); }

reports::PromptDesigns designs_of(const std::vector<runners::GradedAnswer>& graded) {
  std::vector<reports::PromptInfo> prompts;
  std::set<int64_t> known;
  for (const runners::GradedAnswer& g : graded) {
    const runners::StoredAnswer& answer = *g.answer;
    if (!known.insert(answer.prompt_id).second) continue;
    reports::PromptInfo& prompt = prompts.emplace_back();
    prompt.id = answer.prompt_id;
    prompt.key = std::to_string(answer.prompt_id);
    prompt.task = answer.task;
    prompt.category = answer.category;
    prompt.group = answer.group;
  }
  return {prompts, reports::Scope::kSameKind};
}

// Of the prompts that both have graded answers to, means over the samples that both have.
std::map<int64_t, double> grades_apart(const Grades& arm, const Grades& baseline) {
  std::map<int64_t, std::vector<double>> samples;
  for (const auto& [answer, grade] : arm.by_answer)
    if (const auto it = baseline.by_answer.find(answer); it != baseline.by_answer.end())
      samples[answer.first].push_back(grade - it->second);
  std::map<int64_t, double> means;
  for (const auto& [prompt, differences] : samples) means[prompt] = base::mean(differences);
  return means;
}

std::map<std::string, ControlDifference> grade_differences(const GradeTables& t,
                                                           const reports::PromptDesigns& designs) {
  std::map<std::string, ControlDifference> by_label;
  const auto baseline = t.arms.find(t.baseline);
  if (baseline == t.arms.end()) return by_label;
  std::vector<std::string> others;
  std::vector<std::map<int64_t, double>> apart;
  std::set<int64_t> prompts;
  for (const std::string& label : t.labels) {
    if (label == t.baseline) continue;
    others.push_back(label);
    apart.push_back(grades_apart(t.arms.at(label), baseline->second));
    for (const auto& [prompt, difference] : apart.back()) prompts.insert(prompt);
  }
  std::vector<std::vector<std::optional<double>>> by_prompt;
  for (const std::map<int64_t, double>& of_arm : apart) {
    std::vector<std::optional<double>>& values = by_prompt.emplace_back();
    for (const int64_t prompt : prompts) {
      const auto found = of_arm.find(prompt);
      values.push_back(found == of_arm.end() ? std::nullopt : std::optional(found->second));
    }
  }
  const std::vector<int64_t> ids(prompts.begin(), prompts.end());
  constexpr uint64_t kSeed = 1;  // of the draws that several arms need
  const auto found = reports::control_differences(by_prompt, kSeed, 0.95, designs.of(ids));
  for (size_t a = 0; a < others.size(); ++a)
    if (found[a]) by_label[others[a]] = *found[a];
  return by_label;
}

std::string grade_difference_text(const ControlDifference& d) {
  const std::string value = fmt::format("{:+.3f}", d.value);
  if (!d.interval) {
    const char* why = d.spread == reports::Spread::kEqual      ? "no question differs"
                      : d.spread == reports::Spread::kConstant ? "no spread"
                      : d.prompts == 1                         ? "one question"
                                                               : "one group of questions";
    return fmt::format("{} ({})", value, why);
  }
  return fmt::format("{} [{:+.3f}, {:+.3f}]{}", value, d.interval->lo, d.interval->hi,
                     d.differing < reports::kIndicativeBelow
                         ? fmt::format(" ({} of {} differ)", d.differing, d.prompts)
                         : "");
}

Json grade_difference_json(const ControlDifference& d) {
  return {{"mean", d.value},
          {"lo", reports::json_lo(d.interval)},
          {"hi", reports::json_hi(d.interval)},
          {"p", reports::json_value(d.p)},
          {"prompts", d.prompts},
          {"prompts_differing", d.differing}};
}

std::string arms_text(const GradeTables& t) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& label : t.labels) {
    const Grades& g = t.arms.at(label);
    std::string against = "-";
    if (const auto d = t.differences.find(label); d != t.differences.end())
      against = grade_difference_text(d->second);
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
    if (const auto d = differences.find(label); d != differences.end())
      arm["difference"] = grade_difference_json(d->second);
    out.push_back(std::move(arm));
  }
  return out;
}

GradeTables grade_tables(const std::vector<runners::GradedAnswer>& graded,
                         const std::vector<std::string>& labels, const std::string& baseline) {
  GradeTables t{.arms = runners::grades_by_arm(graded),
                .labels = labels,
                .baseline = baseline,
                .differences = {}};
  t.differences = grade_differences(t, designs_of(graded));
  return t;
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
