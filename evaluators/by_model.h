// Figures that a model gives to an answer. They are named here, so that suites can ask for them,
// and taken by `evalrun run`, which has the models (runners/measure/model_scores.h).
//
// Of the last turn's answer, its stop token included:
//
//   answer_nll     mean of -ln p of its tokens, by the run's own target whatever model the arm
//                  decodes, at temperature 1 and with nothing cut. Perplexity is its exponential.
//   reference_nll  the same of the data set's reference in place of an answer, by the model that
//                  the arm decodes: all arms of one model have one figure.
//   surprise       sum over the tokens of -ln p less the entropy, by the distribution that the arm
//                  is to draw from (its model, temperature, top-k, top-p).
//   rare_tokens    how many tokens had p < kRareProbability there, less how many were to be
//                  expected.
//
// Whatever draws from its distribution has the mean 0 in the last two, at any length: for each
// token, given those before it, the mean is 0, and an answer ends by what it holds so far. They are
// sums because a mean over a length that depends on the tokens would not have that. A rule that
// keeps too many drafts, or too few tokens of the tail, moves them away from 0.
#pragma once
#include <vector>

#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

inline constexpr double kRareProbability = 1e-3;

// answer_nll, reference_nll, surprise, rare_tokens @evalrun, without a function that scores.
std::vector<EvaluatorEntry> by_model();

}  // namespace evalrun::evaluators
