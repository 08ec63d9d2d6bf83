// Numbers for the prompts of a run: what belongs to a prompt lies in a vector, where 10^6 rows find
// it without a search.
#pragma once
#include <cstdint>
#include <vector>

#include "reports/data/run_data.h"

namespace evalrun::reports {

class PromptNumbers {
 public:
  PromptNumbers() = default;
  explicit PromptNumbers(const std::vector<PromptInfo>& prompts);
  // 0 .. size() - 1, ascending as ids do. The prompt must be the run's.
  size_t of(int64_t id) const {
    const uint64_t place = static_cast<uint64_t>(id) - static_cast<uint64_t>(first_);
    if (place < numbers_.size() && numbers_[place] != kNone) return numbers_[place];
    return searched(id);
  }
  size_t size() const { return ids_.size(); }
  const std::vector<int64_t>& ids() const { return ids_; }  // by number

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  size_t searched(int64_t id) const;
  std::vector<int64_t> ids_;
  int64_t first_ = 0;
  std::vector<uint32_t> numbers_;  // by id less the first one; empty where ids lie far apart
};

}  // namespace evalrun::reports
