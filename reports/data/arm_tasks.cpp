#include "reports/data/arm_tasks.h"

namespace evalrun::reports {

ArmTasks::ArmTasks(const std::vector<ArmInfo>& arms, const std::vector<PromptInfo>& prompts) {
  for (const ArmInfo& a : arms) arms_.try_emplace(a.id, arms_.size());
  std::unordered_map<std::string, size_t> numbers;
  for (const PromptInfo& p : prompts) {
    const auto [known, added] = numbers.try_emplace(p.task, tasks_.size());
    if (added) tasks_.push_back(p.task);
    tasks_of_[p.id] = known->second;
  }
}

}  // namespace evalrun::reports
