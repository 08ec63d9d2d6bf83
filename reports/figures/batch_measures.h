// What the steps of batches were and how long their sequences waited, by arm and data set.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/data/run_data.h"
#include "reports/figures/undrafted_steps.h"
#include "results/store.h"

namespace evalrun::reports {

// A time, and how often it counts.
struct WeightedTime {
  double ms = 0;
  int64_t weight = 1;
};

// Of n times in ascending order the one at place ceil(share n), the first is at 1.
struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0;
};
std::optional<Percentiles> percentiles(std::vector<WeightedTime> times);

// Of finished generations without a planted fault, every timing repeat. Times in milliseconds.
struct BatchMeasures {
  // Sums over steps, each once.
  double steps = 0, members = 0, rows = 0;
  // Of those in which every place of the batch was taken.
  double full_steps = 0, full_ms = 0;
  std::vector<WeightedTime> plain_steps;   // the same one by one, of the baseline's arms alone
  std::vector<WeightedTime> first_tokens;  // of first turns, from their admission
  std::vector<WeightedTime> per_token;     // of turns with more than a token: after the first one
  std::vector<WeightedTime> gaps;          // between tokens: a step's, spread over its tokens
  double longest_gap = 0;                  // not spread
  bool empty() const { return steps == 0 && first_tokens.empty(); }
  void add(const BatchMeasures& other);
};

class RunBatchMeasures {
 public:
  RunBatchMeasures(const results::ResultStore& store, const RunData& data);
  // Of the arm on these data sets.
  BatchMeasures of(const ArmInfo& arm, const std::set<std::string>& tasks) const;
  // By prompt (UndraftedSteps::beside_plain()); empty where every step of the arm drafted.
  const std::map<int64_t, UndraftedTimes>& undrafted(const ArmInfo& arm) const;
  // Mean context of the steps of plain decoding, by prompt: of all baseline arms.
  const std::map<int64_t, double>& contexts() const { return contexts_; }

 private:
  std::map<ArmTask, BatchMeasures> measures_;
  std::map<int64_t, std::map<int64_t, UndraftedTimes>> undrafted_;  // by arm
  std::map<int64_t, double> contexts_;
};

}  // namespace evalrun::reports
