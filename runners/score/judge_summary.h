// What a judge's replies come to: grades by arm, turn and category, and who wins how often.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runners/score/judging.h"

namespace evalrun::runners {

// Of one arm, over the answers whose replies are all there.
struct Grades {
  std::vector<double> turn[2], all;
  std::map<std::string, std::vector<double>> by_category;
  std::map<std::pair<int64_t, int>, double> by_answer;  // prompt's id, sample -> mean of its turns
  // Answers; turns whose reply holds no rating; answers that still miss a reply.
  int questions = 0, without_rating = 0, incomplete = 0;
};

// By label of the arm.
std::map<std::string, Grades> grades_by_arm(const std::vector<GradedAnswer>& graded);

// Turns that arm a wins, ties and loses, those without verdict, and those that miss a reply.
// Identical answers are ties, too.
struct PairTally {
  int win = 0, tie = 0, lose = 0, none = 0, identical = 0, open = 0;
  void add(const JudgedPair& pair);
};

}  // namespace evalrun::runners
