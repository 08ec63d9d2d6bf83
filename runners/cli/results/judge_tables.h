// Grades and pairs of `evalrun judge` as tables and as JSON.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runners/score/judge_summary.h"

namespace evalrun::cli {

struct GradeTables {
  std::map<std::string, runners::Grades> arms;
  std::vector<std::string> labels;  // of the arms, in order
  std::string baseline;             // what differences are from; may be none of the arms

  // Arms with their means, then means by category.
  std::string text() const;
  nlohmann::ordered_json json() const;
};

struct PairTables {
  runners::PairTally all;
  std::map<std::string, runners::PairTally> by_category;

  void add(const runners::JudgedPair& pair);
  std::string text() const;
  nlohmann::ordered_json overall_json() const;
  nlohmann::ordered_json by_category_json() const;
};

}  // namespace evalrun::cli
