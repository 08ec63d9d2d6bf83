// What speculation costs where it drafts nothing: steps of a method without a draft, beside those
// of plain decoding of the same batch, at the same prompts and neighbouring contexts.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "reports/data/run_data.h"
#include "results/batch_queries.h"

namespace evalrun::reports {

// Steps without a draft that have plain ones beside them, and the time of both in milliseconds.
struct UndraftedTimes {
  int64_t steps = 0;
  double ms = 0, plain_ms = 0;  // plain_ms: of each step's neighbours the mean, added up
};

class UndraftedSteps {
 public:
  // Tokens of context that a step and its neighbours in plain decoding are apart at most.
  static constexpr int64_t kNear = 8;

  explicit UndraftedSteps(const RunData& data);
  // A step in which every place of its batch was taken. `is_new`: no other of its members came
  // before. It drafted nothing where it had a row for each member.
  void add(const results::BatchMemberRow& step, bool is_new);
  // Of all that was added, by arm and prompt. A step counts once, at the prompt of the member that
  // came first. Steps without a neighbour are left out.
  std::map<int64_t, std::map<int64_t, UndraftedTimes>> beside_plain();

 private:
  struct StepTime {
    int64_t context = 0;
    double ms = 0;
  };
  using Place = std::pair<int64_t, int64_t>;  // arm, prompt

  std::map<int64_t, int64_t> reference_of_;           // by arm that drafts and has one
  std::map<int64_t, bool> is_reference_;              // by arm
  std::map<Place, std::vector<StepTime>> plain_;      // of references
  std::map<Place, std::vector<StepTime>> undrafted_;  // of the others
};

}  // namespace evalrun::reports
