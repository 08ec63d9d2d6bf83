// "pass": does the program made of prompt, answer and test end well? pass@k is derived from the
// stored 0 and 1 of several samples.
#pragma once
#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

EvaluatorEntry pass_evalrun();
EvaluatorEntry pass_codegeex();
EvaluatorEntry pass_bigcode();

}  // namespace evalrun::evaluators
