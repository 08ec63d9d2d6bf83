#include "runners/score/judge_summary.h"

#include <fmt/format.h>

namespace evalrun::runners {

std::map<std::string, Grades> grades_by_arm(const std::vector<GradedAnswer>& graded) {
  std::map<std::string, Grades> arms;
  for (const GradedAnswer& g : graded) {
    Grades& arm = arms[g.answer->arm];
    ++arm.questions;
    if (!g.complete) {
      ++arm.incomplete;
      continue;
    }
    std::vector<double> rated;
    for (size_t turn = 0; turn < g.grades.size(); ++turn) {
      if (!g.grades[turn]) {
        ++arm.without_rating;
        continue;
      }
      rated.push_back(*g.grades[turn]);
      arm.turn[turn].push_back(*g.grades[turn]);
      arm.all.push_back(*g.grades[turn]);
      arm.by_category[g.answer->category].push_back(*g.grades[turn]);
    }
    if (!rated.empty())
      arm.by_question[fmt::format("{} {} {}", g.answer->task, g.answer->prompt, g.answer->sample)] =
          base::mean(rated);
  }
  return arms;
}

std::optional<base::MeanInterval> grade_difference(const Grades& arm, const Grades& baseline) {
  std::vector<double> differences;
  for (const auto& [question, grade] : arm.by_question)
    if (const auto it = baseline.by_question.find(question); it != baseline.by_question.end())
      differences.push_back(grade - it->second);
  return base::t_interval(differences, 0.95);
}

void PairTally::add(const JudgedPair& pair) {
  identical += pair.identical;
  open += !pair.complete;
  if (!pair.complete) return;
  win += pair.verdict == evaluators::PairVerdict::kFirst;
  tie += pair.verdict == evaluators::PairVerdict::kTie;
  lose += pair.verdict == evaluators::PairVerdict::kSecond;
  none += pair.verdict == evaluators::PairVerdict::kNone;
}

}  // namespace evalrun::runners
