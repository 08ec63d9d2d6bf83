// Numbers for the pairs of an arm and a data set of a run: what is added up for each of 10^6 rows
// is found by a number, not by a name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "reports/data/id_numbers.h"
#include "reports/data/run_data.h"

namespace evalrun::reports {

class ArmTasks {
 public:
  ArmTasks(const std::vector<ArmInfo>& arms, const std::vector<PromptInfo>& prompts);

  // 0 .. size() - 1. Both must be the run's.
  size_t of(int64_t arm_id, int64_t prompt_id) const {
    return arms_.of(arm_id) * tasks_.size() + tasks_of_[prompts_.of(prompt_id)];
  }
  // Of the arm among those of the run.
  size_t arm_number(int64_t arm_id) const { return arms_.of(arm_id); }
  // All of an arm.
  std::vector<size_t> of_arm(int64_t arm_id) const {
    std::vector<size_t> all(tasks_.size());
    std::iota(all.begin(), all.end(), arms_.of(arm_id) * tasks_.size());
    return all;
  }
  size_t size() const { return arm_ids_.size() * tasks_.size(); }

  // What a vector of size() holds, by name: but for empty containers, and zeros.
  template <typename T>
  std::map<ArmTask, T> by_name(std::vector<T> values) const {
    std::map<ArmTask, T> named;
    for (size_t arm = 0; arm < arm_ids_.size(); ++arm)
      for (size_t task = 0; task < tasks_.size(); ++task)
        if (T& value = values[arm * tasks_.size() + task]; !is_empty(value))
          named.emplace(ArmTask(arm_ids_[arm], tasks_[task]), std::move(value));
    return named;
  }

 private:
  template <typename T>
  static bool is_empty(const T& value) {
    if constexpr (requires { value.empty(); })
      return value.empty();
    else
      return value == T();
  }

  std::vector<int64_t> arm_ids_;
  IdNumbers arms_, prompts_;
  std::vector<size_t> tasks_of_;  // by the number of the prompt
  std::vector<std::string> tasks_;
};

}  // namespace evalrun::reports
