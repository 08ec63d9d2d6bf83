// Grades and pairs of `evalrun judge` as tables and as JSON.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "reports/data/control_differences.h"
#include "runners/score/judge_summary.h"

namespace evalrun::cli {

struct GradeTables {
  std::map<std::string, runners::Grades> arms;
  std::vector<std::string> labels;  // of the arms, in order
  std::string baseline;             // what differences are from; may be none of the arms
  // By label, of the arms that share a question with the baseline. Their intervals hold for all of
  // them at once. As in `report`, answers to one prompt count as one, prompts of a group too, and
  // data sets and categories are strata.
  std::map<std::string, reports::ControlDifference> differences;

  // Arms with their means, then means by category.
  std::string text() const;
  nlohmann::ordered_json json() const;
};
// `labels`: of all arms that have answers among these.
GradeTables grade_tables(const std::vector<runners::GradedAnswer>& graded,
                         const std::vector<std::string>& labels, const std::string& baseline);

struct PairTables {
  runners::PairTally all;
  std::map<std::string, runners::PairTally> by_category;

  void add(const runners::JudgedPair& pair);
  std::string text() const;
  nlohmann::ordered_json overall_json() const;
  nlohmann::ordered_json by_category_json() const;
};

}  // namespace evalrun::cli
