// What pair_with_reference() (pairing.h) says about all prompts, as the estimators take it: columns
// by prompt, and nothing that a row of a report does not read.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "reports/data/pairing.h"

namespace evalrun::reports {

struct PairColumns {
  Estimator estimator = Estimator::kSum;
  Counters method, base;
  std::vector<int64_t> prompts;  // ids, ascending
  // By prompt, sums over samples, as those of Pairing.
  std::vector<PromptPair> decode, requests, first_tokens;
  std::vector<PromptPair> published;  // for kLegacy alone
  // What headline_samples() gives, where there are several samples; else empty.
  std::map<int, std::vector<PromptPair>> by_sample;
  int64_t unpaired = 0;  // cells of either arm without partner
  // What the estimator takes, as headline_pairs().
  const std::vector<PromptPair>& headline() const {
    return estimator == Estimator::kLegacy ? published : decode;
  }
};

PairColumns pair_columns(const ArmCells& method, const ArmCells& base, Estimator estimator);

}  // namespace evalrun::reports
