#include "runners/score/judge_summary.h"

#include "engine/base/stats.h"

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
    if (!rated.empty()) arm.by_answer[{g.answer->prompt_id, g.answer->sample}] = base::mean(rated);
  }
  return arms;
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
