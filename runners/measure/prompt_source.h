// Which prompts of a plan a run measures next, where other processes measure the same plan.
#pragma once
#include <vector>

namespace evalrun::runners {

class PromptSource {
 public:
  virtual ~PromptSource() = default;
  // Indices of RunPlan::prompts to measure now, in whole waves and with all arms, repeats and
  // samples: what is compared is measured by one process, close together in time. Empty = nothing
  // is left.
  virtual std::vector<int> next() = 0;
};

}  // namespace evalrun::runners
