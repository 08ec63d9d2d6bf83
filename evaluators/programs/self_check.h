// Small problems of our own, one per language, by which doctor and the tests see whether programs
// can be run here at all.
#pragma once
#include <vector>

#include "datasets/dataset.h"

namespace evalrun::evaluators {

// In the shape of HumanEval-X: "add two numbers", with official-looking prompt, solution and test.
const std::vector<datasets::CodeProblem>& self_check_problems();

}  // namespace evalrun::evaluators
