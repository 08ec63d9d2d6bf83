#include "reports/data/prompt_numbers.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::reports {

PromptNumbers::PromptNumbers(const std::vector<PromptInfo>& prompts) {
  ids_.reserve(prompts.size());
  for (const PromptInfo& p : prompts) ids_.push_back(p.id);
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  if (ids_.empty()) return;
  first_ = ids_.front();
  // A run's prompts are stored one after the other. A table for others would be large.
  constexpr uint64_t kLargestPerPrompt = 4;
  const uint64_t apart = static_cast<uint64_t>(ids_.back()) - static_cast<uint64_t>(first_);
  if (apart >= kLargestPerPrompt * ids_.size()) return;
  numbers_.assign(apart + 1, kNone);
  for (size_t i = 0; i < ids_.size(); ++i)
    numbers_[static_cast<size_t>(ids_[i] - first_)] = static_cast<uint32_t>(i);
}

size_t PromptNumbers::searched(int64_t id) const {
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
  EVALRUN_CHECK(found != ids_.end() && *found == id, "prompt {} is none of the run's", id);
  return static_cast<size_t>(found - ids_.begin());
}

}  // namespace evalrun::reports
