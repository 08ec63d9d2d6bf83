#include "reports/data/id_numbers.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::reports {

IdNumbers::IdNumbers(const std::vector<int64_t>& ids) {
  if (ids.empty()) return;
  const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
  first_ = *least;
  // A run's prompts are stored one after the other. A table for others would be large.
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
  EVALRUN_CHECK(at != sorted_.end() && at->first == id, "id {} is none of the run's", id);
  return at->second;
}

PromptNumbers::PromptNumbers(const std::vector<PromptInfo>& prompts) {
  ids_.reserve(prompts.size());
  for (const PromptInfo& p : prompts) ids_.push_back(p.id);
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  numbers_ = IdNumbers(ids_);
}

}  // namespace evalrun::reports
