#include "runners/measure/warmup.h"

#include <algorithm>
#include <cmath>

namespace evalrun::runners {
namespace {

constexpr size_t kWindow = 5;
constexpr double kTolerance = 0.01;

double median_of_window(std::vector<int64_t>::const_iterator begin) {
  std::vector<int64_t> window(begin, begin + kWindow);
  std::nth_element(window.begin(), window.begin() + kWindow / 2, window.end());
  return static_cast<double>(window[kWindow / 2]);
}

}  // namespace

bool SteadyState::settled() const {
  if (times_.size() < 2 * kWindow) return false;
  const double last = median_of_window(times_.end() - kWindow);
  const double before = median_of_window(times_.end() - 2 * kWindow);
  return std::abs(last - before) <= kTolerance * before;
}

}  // namespace evalrun::runners
