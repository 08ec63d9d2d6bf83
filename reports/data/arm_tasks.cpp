#include "reports/data/arm_tasks.h"

#include <string>
#include <unordered_map>

namespace evalrun::reports {
namespace {

template <typename T>
std::vector<int64_t> id_list(const std::vector<T>& rows) {
  std::vector<int64_t> ids;
  ids.reserve(rows.size());
  for (const T& row : rows) ids.push_back(row.id);
  return ids;
}

}  // namespace

ArmTasks::ArmTasks(const std::vector<ArmInfo>& arms, const std::vector<PromptInfo>& prompts)
    : arm_ids_(id_list(arms)), arms_(arm_ids_), prompts_(id_list(prompts)) {
  std::unordered_map<std::string, size_t> numbers;
  tasks_of_.reserve(prompts.size());
  for (const PromptInfo& p : prompts) {
    const auto [known, added] = numbers.try_emplace(p.task, tasks_.size());
    if (added) tasks_.push_back(p.task);
    tasks_of_.push_back(known->second);
  }
}

}  // namespace evalrun::reports
