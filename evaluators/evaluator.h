// Judges over finished generations: pure functions of prompt and text.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/base/registry.h"
#include "results/records.h"

namespace evalrun::evaluators {

struct EvaluatorInfo {
  std::string name;     // "gsm8k_flexible"
  std::string version;  // convention, e.g. "lm-eval-3"
  std::string summary;
  std::string unit;  // "accuracy"
  bool higher_is_better = true;
};

struct EvaluatorEntry {
  EvaluatorInfo info;
  // texts: the model's answers, one per turn. Never throws for odd text: a status says what
  // happened.
  std::function<results::ScoreRecord(const datasets::Prompt&,
                                     const std::vector<std::string>& texts)>
      score;
};

const base::Registry<EvaluatorEntry>& evaluator_registry();

}  // namespace evalrun::evaluators
