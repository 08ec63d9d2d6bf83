// Numbers for the ids of a run: what belongs to a prompt or an arm lies in a vector, where 10^6
// rows find it without a search.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "reports/data/run_data.h"

namespace evalrun::reports {

// 0, 1, ... for different ids in the order they were given: from a table where they lie close
// together, as those of a run's prompts do, else by search.
class IdNumbers {
 public:
  IdNumbers() = default;
  explicit IdNumbers(const std::vector<int64_t>& ids);

  // Throws base::InternalError for any other id.
  size_t of(int64_t id) const {
    const uint64_t place = from_first(id);
    return place < table_.size() && table_[place] != kNone ? table_[place] : find(id);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Very large for ids before the first.
  uint64_t from_first(int64_t id) const {
    return static_cast<uint64_t>(id) - static_cast<uint64_t>(first_);
  }
  size_t find(int64_t id) const;

  int64_t first_ = 0;
  std::vector<uint32_t> table_;                     // from `first_` on
  std::vector<std::pair<int64_t, size_t>> sorted_;  // where there is no table
};

// 0 .. size() - 1 for the prompts of a run, ascending as their ids do.
class PromptNumbers {
 public:
  PromptNumbers() = default;
  explicit PromptNumbers(const std::vector<PromptInfo>& prompts);
  // The prompt must be the run's.
  size_t of(int64_t id) const { return numbers_.of(id); }
  size_t size() const { return ids_.size(); }
  const std::vector<int64_t>& ids() const { return ids_; }  // by number

 private:
  std::vector<int64_t> ids_;
  IdNumbers numbers_;
};

}  // namespace evalrun::reports
