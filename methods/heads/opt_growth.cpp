#include "methods/heads/opt_growth.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

namespace evalrun::methods {

OptGrowth::OptGrowth(int nodes, double delta, int most)
    : nodes_(static_cast<size_t>(nodes)), delta_(delta) {
  best_.reserve(static_cast<size_t>(nodes) + static_cast<size_t>(most));
}

void OptGrowth::clear() {
  best_.clear();
  expected_ = 0;
}

bool OptGrowth::grows() {
  const size_t kept = std::min(nodes_, best_.size());
  std::partial_sort(best_.begin(), best_.begin() + static_cast<ptrdiff_t>(kept), best_.end(),
                    std::greater<>());
  best_.resize(kept);
  const double before = expected_;
  expected_ = std::accumulate(best_.begin(), best_.end(), 0.0);
  return expected_ - before > delta_;
}

}  // namespace evalrun::methods
