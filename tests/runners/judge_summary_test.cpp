// What a judge's grades and pairs come to, by hand.
#include "runners/score/judge_summary.h"

#include <gmock/gmock.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
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
  EXPECT_TRUE(arms().at("ar").by_question.empty());
  EXPECT_EQ(arms().at("ar").without_rating, 2);
}

// Means per question: 7, 4, 5 and 8, 6, 6. The question that one arm alone has is left out.
TEST_F(JudgeSummary, DifferencesArePairedByQuestion) {
  grade("ar", "81", "", {8, 6});
  grade("ar", "82", "", {4, std::nullopt});
  grade("ar", "83", "", {5, 5});
  grade("pld", "81", "", {9, 7});
  grade("pld", "82", "", {6, 6});
  grade("pld", "83", "", {6, 6});
  grade("pld", "84", "", {10, 10});
  const auto by_arm = arms();
  const auto d = runners::grade_difference(by_arm.at("pld"), by_arm.at("ar"));
  ASSERT_TRUE(d);
  EXPECT_EQ(d->n, 3);
  EXPECT_DOUBLE_EQ(d->mean, 4.0 / 3);  // 1, 2, 1
  // Standard error 1/3; Student's t with 2 degrees of freedom at 97.5 % is 4.302653.
  EXPECT_NEAR(d->interval.lo, 4.0 / 3 - 4.302653 / 3, 1e-6);
  EXPECT_NEAR(d->interval.hi, 4.0 / 3 + 4.302653 / 3, 1e-6);
}

TEST_F(JudgeSummary, OneCommonQuestionHasNoInterval) {
  grade("ar", "81", "", {8, 6});
  grade("pld", "81", "", {9, 7});
  const auto by_arm = arms();
  EXPECT_FALSE(runners::grade_difference(by_arm.at("pld"), by_arm.at("ar")));
}

TEST_F(JudgeSummary, SamplesOfAPromptAreQuestionsOfTheirOwn) {
  grade("ar", "81", "", {8});
  grade("ar", "81", "", {4});
  answers_.back().sample = 1;
  EXPECT_THAT(arms().at("ar").by_question,
              ElementsAre(std::pair("mt_bench 81 0", 8.0), std::pair("mt_bench 81 1", 4.0)));
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
