// What a row of a report needs of an arm and its reference, as the estimators take it: columns by
// prompt. Others pair some of the prompts, and read less (pairing.h).
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "reports/data/pairing.h"

namespace evalrun::reports {

struct PairColumns {
  Estimator estimator = Estimator::kSum;
  int64_t batch = 1;  // of the method's arm: which prompts are one unit (PromptDesigns)
  Counters method, base;
  std::vector<int64_t> prompts;  // ids, ascending
  // Of these prompts, sums over samples.
  std::vector<PromptPair> decode;        // decode tokens and decode time
  std::vector<PromptPair> requests;      // all tokens, prefill and decode time
  std::vector<PromptPair> first_tokens;  // one token an answer, and the time to it
  std::vector<PromptPair> published;     // requests as Spec-Bench counts tokens; for kLegacy alone
  // Where there are several samples: of each one what the estimator takes, an entry per prompt.
  std::map<int, std::vector<PromptPair>> by_sample;
  int64_t unpaired = 0;  // cells of either arm without partner
  // What the estimator takes: decode tokens and decode time, or for kLegacy whole requests as
  // Spec-Bench divides them. Its script (evaluation/speed.py) takes the wall time of a whole
  // answer, prefill included. It has the method's own count of new tokens, and for the baseline the
  // tokens of its text, in which no stop token is.
  const std::vector<PromptPair>& headline() const {
    return estimator == Estimator::kLegacy ? published : decode;
  }
};

PairColumns pair_columns(const ArmCells& method, const ArmCells& base, Estimator estimator,
                         int64_t batch = 1);

}  // namespace evalrun::reports
