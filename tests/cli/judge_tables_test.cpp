// Differences of the judge's grades from the baseline's, by hand: which answers count as one.
#include "runners/cli/results/judge_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace evalrun::cli {
namespace {

using reports::ControlDifference;
using reports::Spread;
using ::testing::HasSubstr;

class JudgeTables : public ::testing::Test {
 protected:
  runners::StoredAnswer& grade(const std::string& arm, int prompt,
                               std::vector<std::optional<double>> grades) {
    runners::StoredAnswer& answer = answers_.emplace_back();
    answer.arm = arm, answer.task = "mt_bench", answer.prompt_id = prompt;
    graded_.push_back({&answer, std::move(grades), true});
    return answer;
  }
  // One grade each of the baseline and of "pld", that far above it.
  void grade_both(int prompt, double difference, const std::string& category,
                  const std::string& group) {
    for (const bool baseline : {true, false}) {
      runners::StoredAnswer& a =
          grade(baseline ? "ar" : "pld", prompt, {baseline ? 1 : 1 + difference});
      a.category = category, a.group = group;
    }
  }
  GradeTables tables(const std::vector<std::string>& labels = {"ar", "pld"}) const {
    return grade_tables(graded_, labels, "ar");
  }
  ControlDifference pld() const { return tables().differences.at("pld"); }

  std::deque<runners::StoredAnswer> answers_;  // graded_ points at them
  std::vector<runners::GradedAnswer> graded_;
};

// Standard error 1/3; Student's t with 2 degrees of freedom at 97.5 % is 4.302653.
void expect_of_1_2_1(const ControlDifference& d) {
  EXPECT_DOUBLE_EQ(d.value, 4.0 / 3);
  EXPECT_EQ(d.prompts, 3);
  EXPECT_EQ(d.differing, 3);
  ASSERT_TRUE(d.interval);
  EXPECT_NEAR(d.interval->lo, 4.0 / 3 - 4.302653 / 3, 1e-6);
  EXPECT_NEAR(d.interval->hi, 4.0 / 3 + 4.302653 / 3, 1e-6);
}

// Means per question: 7, 4, 5 and 8, 6, 6. The question that one arm alone has is left out.
TEST_F(JudgeTables, DifferencesArePairedByQuestion) {
  grade("ar", 81, {8, 6});
  grade("ar", 82, {4, std::nullopt});
  grade("ar", 83, {5, 5});
  grade("pld", 81, {9, 7});
  grade("pld", 82, {6, 6});
  grade("pld", 83, {6, 6});
  grade("pld", 84, {10, 10});
  const GradeTables t = tables();
  EXPECT_EQ(t.differences.size(), 1u) << "not of the baseline from itself";
  expect_of_1_2_1(t.differences.at("pld"));
  EXPECT_THAT(t.text(), HasSubstr("3 of 3 differ"));
  const auto json = t.json();
  EXPECT_FALSE(json[0].contains("difference"));
  EXPECT_NEAR(json[1]["difference"]["hi"].get<double>(), 4.0 / 3 + 4.302653 / 3, 1e-6);
  EXPECT_EQ(json[1]["difference"]["prompts"], 3);
}

// Two samples each: 2 and 0, 2 and 2, 1 and 1 apart. A sample that one arm alone has is left out.
TEST_F(JudgeTables, SamplesOfAPromptAreOneQuestion) {
  const double apart[3][2] = {{2, 0}, {2, 2}, {1, 1}};
  for (int prompt = 0; prompt < 3; ++prompt)
    for (int sample = 0; sample < 2; ++sample) {
      grade("ar", prompt, {3.0 + sample}).sample = sample;
      grade("pld", prompt, {3.0 + sample + apart[prompt][sample]}).sample = sample;
    }
  grade("pld", 0, {10}).sample = 2;
  expect_of_1_2_1(pld());
}

// Means of the groups 1 and 5: 3 with a standard error of 2 and one degree of freedom.
TEST_F(JudgeTables, PromptsOfAGroupAreOneUnit) {
  for (int prompt = 0; prompt < 4; ++prompt)
    grade_both(prompt, 2 * prompt, "", prompt < 2 ? "a" : "b");
  const ControlDifference d = pld();
  EXPECT_DOUBLE_EQ(d.value, 3);
  ASSERT_TRUE(d.interval);
  EXPECT_NEAR(d.interval->hi, 3 + 2 * 12.706204736174698, 1e-6);
}

// 1, 3 | 10, 14, 18: as MeanInterval.OfStrataByHand, standard error sqrt(2.08), 5 - 2 degrees of
// freedom.
TEST_F(JudgeTables, CategoriesAreStrata) {
  const double apart[] = {1, 10, 3, 14, 18};
  for (int prompt = 0; prompt < 5; ++prompt)
    grade_both(prompt, apart[prompt], prompt == 0 || prompt == 2 ? "x" : "y", "");
  const ControlDifference d = pld();
  EXPECT_NEAR(d.value, 9.2, 1e-12);
  ASSERT_TRUE(d.interval);
  EXPECT_NEAR(d.interval->hi, 9.2 + 3.182446305284263 * std::sqrt(2.08), 1e-6);
}

TEST_F(JudgeTables, IntervalsHoldForAllArmsAtOnce) {
  const auto width = [](const ControlDifference& d) { return d.interval->hi - d.interval->lo; };
  for (int prompt = 0; prompt < 40; ++prompt) grade_both(prompt, prompt % 2, "", "");
  const double alone = width(pld());
  for (int prompt = 0; prompt < 40; ++prompt) grade("sps", prompt, {1.0 + prompt / 2 % 2});
  const auto both = tables({"ar", "pld", "sps"}).differences;
  // The larger of two independent errors: 2.24 standard errors instead of 1.96.
  EXPECT_GT(width(both.at("pld")), 1.08 * alone);
  EXPECT_LT(width(both.at("pld")), 1.25 * alone);
}

TEST_F(JudgeTables, WhatHasNoIntervalIsSaid) {
  const auto said = [&](Spread spread, const std::string& why) {
    const GradeTables t = tables();
    const ControlDifference& d = t.differences.at("pld");
    EXPECT_EQ(d.spread, spread);
    EXPECT_FALSE(d.interval || d.p);
    EXPECT_THAT(t.text(), HasSubstr(why));
    EXPECT_TRUE(t.json()[1]["difference"]["lo"].is_null());
    graded_.clear();
  };
  grade_both(1, 0, "", "");
  grade_both(2, 0, "", "");
  said(Spread::kEqual, "(no question differs)");
  grade_both(1, 1, "", "");
  said(Spread::kOneUnit, "(one question)");
  grade_both(1, 1, "", "g");
  grade_both(2, 3, "", "g");
  said(Spread::kOneUnit, "(one group of questions)");
  grade_both(1, 2, "", "");
  grade_both(2, 2, "", "");
  said(Spread::kConstant, "(no spread)");
  grade("pld", 1, {5});
  EXPECT_TRUE(tables({"pld"}).differences.empty()) << "the baseline is none of the arms";
}

}  // namespace
}  // namespace evalrun::cli
