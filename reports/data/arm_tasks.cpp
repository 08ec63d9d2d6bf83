#include "reports/data/arm_tasks.h"

#include <algorithm>
#include <stdexcept>
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

IdNumbers::IdNumbers(const std::vector<int64_t>& ids) {
  if (ids.empty()) return;
  const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
  first_ = *least;
  if (const uint64_t range = from_first(*most); range < 4 * ids.size()) {
    table_.assign(static_cast<size_t>(range) + 1, kNone);
    for (size_t i = 0; i < ids.size(); ++i)
      table_[static_cast<size_t>(from_first(ids[i]))] = static_cast<uint32_t>(i);
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) sorted_.emplace_back(ids[i], i);
  std::sort(sorted_.begin(), sorted_.end());
}

size_t IdNumbers::find(int64_t id) const {
  const auto at =
      std::lower_bound(sorted_.begin(), sorted_.end(), id,
                       [](const auto& entry, int64_t wanted) { return entry.first < wanted; });
  if (at == sorted_.end() || at->first != id) throw std::out_of_range("IdNumbers::of");
  return at->second;
}

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
