// A few answers per evaluator with the score they must get, compiled in: `evalrun doctor` shows
// with them that this build scores as the conventions say. The tests compare with far more.
#pragma once
#include <string>
#include <vector>

namespace evalrun::evaluators {

// Of the registered evaluators that need no program or server.
struct SelfTestResult {
  int n_evaluators = 0, n_vectors = 0;
  std::vector<std::string> problems;  // one line each; an evaluator without a vector is one
};
SelfTestResult self_test();

}  // namespace evalrun::evaluators
