#include "runners/plan/schedule.h"

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::runners {
namespace {

std::vector<int> random_permutation(int n, base::Rng& rng) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

// Which arm stands in each slot of one block, for all three orders.
class ArmOrder {
 public:
  ArmOrder(const ScheduleShape& shape, Order order, uint64_t seed)
      : n_arms_(shape.n_arms), order_(order), rng_(seed) {
    if (order != Order::kInterleaved) return;
    const int n_groups = (static_cast<int>(shape.waves.size()) + n_arms_ - 1) / n_arms_;
    for (int g = 0; g < n_groups; ++g) {
      permutations_.push_back(random_permutation(n_arms_, rng_));
      first_rows_.push_back(random_permutation(n_arms_, rng_));
    }
  }
  // `round` counts the times a wave has been visited before.
  std::vector<int> of(int wave, int round) {
    if (order_ == Order::kRandom) return random_permutation(n_arms_, rng_);
    std::vector<int> arms(static_cast<size_t>(n_arms_));
    std::iota(arms.begin(), arms.end(), 0);
    if (order_ == Order::kSequential) return arms;
    const auto group = static_cast<size_t>(wave / n_arms_);
    const int row = first_rows_[group][static_cast<size_t>(wave % n_arms_)] + round;
    for (int slot = 0; slot < n_arms_; ++slot)
      arms[static_cast<size_t>(slot)] =
          permutations_[group][static_cast<size_t>((slot + row) % n_arms_)];
    return arms;
  }

 private:
  int n_arms_;
  Order order_;
  base::Rng rng_;
  std::vector<std::vector<int>> permutations_, first_rows_;
};

}  // namespace

std::vector<std::vector<int>> waves_of_one(int n_prompts) {
  std::vector<std::vector<int>> waves;
  for (int prompt = 0; prompt < n_prompts; ++prompt) waves.push_back({prompt});
  return waves;
}

std::vector<Visit> make_schedule(const ScheduleShape& shape, Order order, uint64_t seed) {
  EVALRUN_CHECK(!shape.waves.empty() && shape.n_arms > 0 && shape.repeats > 0 && shape.samples > 0);
  // A stream of its own: the order must not depend on how many numbers the sampling uses.
  ArmOrder arm_order(shape, order, base::combine_seeds({seed, 0x6f72646572ull}));
  std::vector<Visit> visits;
  const auto n_waves = static_cast<int>(shape.waves.size());
  int block = 0;
  for (int repeat = 0; repeat < shape.repeats; ++repeat)
    for (int sample = 0; sample < shape.samples; ++sample)
      for (int wave = 0; wave < n_waves; ++wave, ++block) {
        const std::vector<int> arms = arm_order.of(wave, repeat * shape.samples + sample);
        for (int slot = 0; slot < shape.n_arms; ++slot)
          for (const int prompt : shape.waves[static_cast<size_t>(wave)])
            visits.push_back(
                {repeat, sample, prompt, arms[static_cast<size_t>(slot)], block, slot});
      }
  if (order == Order::kSequential)  // one arm after the other within each repeat
    std::stable_sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
      return a.repeat != b.repeat ? a.repeat < b.repeat : a.arm < b.arm;
    });
  return visits;
}

}  // namespace evalrun::runners
