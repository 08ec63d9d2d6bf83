// evalrun score RUN --against ar: likeness of a stored run's answers to those of its baseline arm.
#pragma once
#include <string>
#include <vector>

#include "runners/cli/cli.h"

namespace evalrun::cli {

struct ScoreRunOptions {
  std::string run, against;
  std::vector<std::string> evaluators;  // empty = those of similarity_evaluators()
  int workers = 0;                      // 0 = all cores
};
void score_run(const ScoreRunOptions& options, Context& context);

}  // namespace evalrun::cli
