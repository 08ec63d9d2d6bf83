// What a judge's replies come to: grades by arm, turn and category, the paired difference of two
// arms, and who wins how often.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "runners/score/judging.h"

namespace evalrun::runners {

// Of one arm, over the answers whose replies are all there.
struct Grades {
  std::vector<double> turn[2], all;
  std::map<std::string, std::vector<double>> by_category;
  std::map<std::string, double> by_question;  // mean of its grades
  // Answers; turns whose reply holds no rating; answers that still miss a reply.
  int questions = 0, without_rating = 0, incomplete = 0;
};

// By label of the arm.
std::map<std::string, Grades> grades_by_arm(const std::vector<GradedAnswer>& graded);

// Mean difference from the baseline over the questions both have grades of, with its 95 % interval;
// nullopt for fewer than two.
std::optional<base::MeanInterval> grade_difference(const Grades& arm, const Grades& baseline);

// Turns that arm a wins, ties and loses, those without verdict, and those that miss a reply.
// Identical answers are ties, too.
struct PairTally {
  int win = 0, tie = 0, lose = 0, none = 0, identical = 0, open = 0;
  void add(const JudgedPair& pair);
};

}  // namespace evalrun::runners
