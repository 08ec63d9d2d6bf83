// Sums over steps and draft nodes as they come, by the number of their arm and data set (ArmTasks):
// what the views v_acceptance_histogram and v_node_acceptance say about a run.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "reports/data/arm_tasks.h"
#include "reports/data/run_data.h"

namespace evalrun::reports {

// Counts by two numbers, which are small. Larger ones are counted, too, only slower.
template <typename Count>
class CountGrid {
 public:
  Count& at(int64_t row, int64_t column) {
    if (row < 0 || column < 0 || row >= kSide || column >= kSide) return others_[{row, column}];
    const auto place = static_cast<size_t>(row * kSide + column);
    if (place >= cells_.size()) cells_.resize(static_cast<size_t>((row + 1) * kSide));
    return cells_[place];
  }
  bool empty() const { return cells_.empty() && others_.empty(); }
  // Ascending, without zeros.
  std::map<std::pair<int64_t, int64_t>, Count> all() const {
    auto list = others_;
    for (size_t i = 0; i < cells_.size(); ++i)
      if (cells_[i] != Count())
        list[{static_cast<int64_t>(i) / kSide, static_cast<int64_t>(i) % kSide}] = cells_[i];
    return list;
  }

 private:
  static constexpr int64_t kSide = 128;
  std::vector<Count> cells_;
  std::map<std::pair<int64_t, int64_t>, Count> others_;
};

// All are of finished generations without a planted fault.
class OutcomeSums {
 public:
  OutcomeSums(const std::vector<ArmInfo>& arms, const ArmTasks& places);

  // Those of arms that do not draft are left out. `outcome`: 2 * accepted, and 1 more where the
  // stop rule cut the steps.
  void add_steps(size_t place, int64_t depth, int64_t outcome, int64_t n) {
    if (drafts_[place]) steps_[place].at(depth, outcome) += n;
  }
  void add_node(size_t place, int64_t depth, int64_t rank, int64_t tested, int64_t accepted) {
    Tested& n = nodes_[place].at(depth, rank);
    n[0] += tested, n[1] += accepted;
  }
  // `places`: the same as before.
  RunCounts by_name(const ArmTasks& places) &&;

 private:
  using Tested = std::array<int64_t, 2>;  // tested, accepted
  std::vector<bool> drafts_;              // by place, as all of these
  std::vector<CountGrid<int64_t>> steps_;
  std::vector<CountGrid<Tested>> nodes_;
};

}  // namespace evalrun::reports
