// What the scores of many answers by one evaluator come to.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/records.h"

namespace evalrun::runners {

// One answer's score; `prompt` says which answers are samples of the same prompt.
struct JudgedAnswer {
  size_t prompt = 0;
  const results::ScoreRecord* score = nullptr;
};

struct ScoreSummary {
  // Mean over prompts of the mean over their samples; nothing when no answer has a value, or when
  // `stopped`.
  std::optional<double> value;
  std::optional<double> standard_error;    // over prompts; from two prompts on
  size_t n_prompts = 0, n_answers = 0;     // that have a value
  std::map<std::string, size_t> statuses;  // of all answers, with a value or not
  size_t n_suspicious = 0;
  // Answers could not be run for want of a sandbox or toolchain: a mean over the rest would pass
  // for one over all.
  bool stopped = false;
};

ScoreSummary summarise(std::span<const JudgedAnswer> answers);

}  // namespace evalrun::runners
