// What a judge's grades and pairs come to, by hand.
#include "runners/score/judge_summary.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace evalrun::tests {
namespace {

using evaluators::PairVerdict;
using ::testing::ElementsAre;

class JudgeSummary : public ::testing::Test {
 protected:
  // An answer of `arm` with these grades; nullopt = a reply without a rating.
  void grade(const std::string& arm, const std::string& prompt, const std::string& category,
             std::vector<std::optional<double>> grades, bool complete = true) {
    runners::StoredAnswer& answer = answers_.emplace_back();
    answer.arm = arm, answer.task = "mt_bench", answer.prompt = prompt, answer.category = category;
    answer.prompt_id = std::stoll(prompt);
    graded_.push_back({&answer, std::move(grades), complete});
  }
  std::map<std::string, runners::Grades> arms() const { return runners::grades_by_arm(graded_); }

  std::deque<runners::StoredAnswer> answers_;  // graded_ points at them
  std::vector<runners::GradedAnswer> graded_;
};

TEST_F(JudgeSummary, GradesByArmTurnAndCategory) {
  grade("ar", "81", "writing", {8, 6});
  grade("ar", "101", "math", {4, std::nullopt});
  grade("ar", "102", "math", {std::nullopt, 1}, false);
  grade("pld", "81", "writing", {9, 7});
  const auto by_arm = arms();
  ASSERT_EQ(by_arm.size(), 2u);
  const runners::Grades& ar = by_arm.at("ar");
  EXPECT_EQ(ar.questions, 3);
  EXPECT_EQ(ar.without_rating, 1) << "of complete answers alone";
  EXPECT_EQ(ar.incomplete, 1);
  EXPECT_THAT(ar.turn[0], ElementsAre(8, 4));
  EXPECT_THAT(ar.turn[1], ElementsAre(6));
  EXPECT_THAT(ar.all, ElementsAre(8, 6, 4)) << "an answer with a reply missing counts for nothing";
  EXPECT_THAT(ar.by_category.at("writing"), ElementsAre(8, 6));
  EXPECT_THAT(ar.by_category.at("math"), ElementsAre(4));
  EXPECT_THAT(by_arm.at("pld").all, ElementsAre(9, 7));
}

TEST_F(JudgeSummary, AQuestionWithoutAnyRatingHasNoGrade) {
  grade("ar", "81", "writing", {std::nullopt, std::nullopt});
  EXPECT_TRUE(arms().at("ar").by_answer.empty());
  EXPECT_EQ(arms().at("ar").without_rating, 2);
}

TEST_F(JudgeSummary, AnAnswersGradeIsTheMeanOfItsTurns) {
  grade("ar", "81", "", {8, 6});
  grade("ar", "81", "", {4, std::nullopt});
  answers_.back().sample = 1;
  using Answer = std::pair<int64_t, int>;
  EXPECT_THAT(arms().at("ar").by_answer,
              ElementsAre(std::pair(Answer(81, 0), 7.0), std::pair(Answer(81, 1), 4.0)));
}

TEST_F(JudgeSummary, TalliesOfPairs) {
  runners::PairTally tally;
  const auto add = [&tally](PairVerdict verdict, bool identical, bool complete) {
    runners::JudgedPair pair;
    pair.verdict = verdict, pair.identical = identical, pair.complete = complete;
    tally.add(pair);
  };
  for (const PairVerdict v :
       {PairVerdict::kFirst, PairVerdict::kFirst, PairVerdict::kFirst, PairVerdict::kTie,
        PairVerdict::kTie, PairVerdict::kSecond, PairVerdict::kNone})
    add(v, false, true);
  add(PairVerdict::kTie, true, true);
  add(PairVerdict::kFirst, false, false);
  EXPECT_EQ(tally.win, 3) << "an open pair has no winner";
  EXPECT_EQ(tally.tie, 3) << "an identical answer is a tie";
  EXPECT_EQ(tally.lose, 1);
  EXPECT_EQ(tally.none, 1);
  EXPECT_EQ(tally.identical, 1);
  EXPECT_EQ(tally.open, 1);
}

}  // namespace
}  // namespace evalrun::tests
