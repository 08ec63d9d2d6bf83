#include "methods/greedy_paths.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/error.h"
#include "engine/sampling.h"

namespace evalrun::methods {

int ratio_class(double p, double q, double mass) {
  // Borders off the powers of two: a ratio of one, as of a draft that is the target, is on none.
  constexpr double kShift = 1 + 1.0 / 128;
  constexpr int kDropped = 17;  // bits of the mantissa; 6 stay
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(kShift * p * mass / q));
  return std::min(static_cast<int>(bits >> kDropped), kRatioClasses - 1);
}

double GreedyPaths::share_of(double below, double through) const {
  const double up_to = below + through;
  double sum = 1, power = 1;
  for (int i = 1; i < paths_; ++i) {
    power *= below;
    sum = sum * up_to + power;
  }
  return sum;
}

void GreedyPaths::sum_classes(std::span<const double> p, std::span<const double> q, double mass) {
  lower_.resize(static_cast<size_t>(kRatioClasses));
  std::fill(lower_.begin() + least_, lower_.begin() + most_ + 1, 0.0);
  least_ = kRatioClasses - 1, most_ = 0;
  const double scale = 1 / mass;
  for (size_t x = 0; x < q.size(); ++x) {
    if (!(q[x] > 0)) continue;
    const int its_class = ratio_class(p[x], q[x], mass);
    least_ = std::min(least_, its_class), most_ = std::max(most_, its_class);
    lower_[static_cast<size_t>(its_class)] += q[x] * scale;
  }
  double sum = 0;
  for (int i = least_; i <= most_; ++i) sum += std::exchange(lower_[static_cast<size_t>(i)], sum);
}

size_t GreedyPaths::step(std::span<const double> p, std::span<const double> q,
                         std::span<const int32_t> tokens, std::vector<double>& law) {
  const size_t n = std::min(p.size(), q.size());
  const double mass = engine::sum(q);
  const double scale = 1 / mass;
  size_t taken = 0;
  int taken_class = -1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<size_t>(tokens[i]);
    EVALRUN_CHECK(token < n && q[token] > 0,
                  "the drafter reports no probability for the token {} it drew", token);
    const int its_class = ratio_class(p[token], q[token], mass);
    if (its_class < taken_class || (its_class == taken_class && tokens[i] > tokens[taken]))
      continue;
    taken = i;
    taken_class = its_class;
  }
  sum_classes(p.first(n), q.first(n), mass);
  law.assign(n, 0.0);
  const double share = share_of(below_, through_);
  const auto taken_token = static_cast<size_t>(tokens[taken]);
  double next_below = 0, next_through = 0;
  for (size_t x = n; x-- > 0;) {  // of equal ratios the largest id is the lowest
    if (!(q[x] > 0)) continue;
    double& lower = lower_[static_cast<size_t>(ratio_class(p[x], q[x], mass))];
    const double below = below_ + through_ * lower, through = through_ * q[x] * scale;
    lower += q[x] * scale;
    law[x] = q[x] * scale * share_of(below, through) / share;
    if (x == taken_token) next_below = below, next_through = through;
  }
  const double up_to = next_below + next_through;
  below_ = next_below / up_to;
  through_ = next_through / up_to;
  return taken;
}

}  // namespace evalrun::methods
