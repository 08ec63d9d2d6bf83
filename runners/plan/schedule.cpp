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

// The arms of one block in their order, those with turns of one length together.
struct TurnsOfALength {
  size_t length = 0;  // prompts
  int first_slot = 0;
  std::vector<int> arms;
};

std::vector<TurnsOfALength> by_length(const ScheduleShape& shape, const std::vector<int>& arms,
                                      size_t wave_size) {
  std::vector<TurnsOfALength> groups;
  for (const int arm : arms) {
    const size_t length =
        shape.turns.empty()
            ? wave_size
            : std::min(wave_size, static_cast<size_t>(shape.turns[static_cast<size_t>(arm)]));
    auto group = std::find_if(groups.begin(), groups.end(),
                              [length](const TurnsOfALength& g) { return g.length == length; });
    if (group == groups.end()) group = groups.insert(groups.end(), {length, 0, {}});
    group->arms.push_back(arm);
  }
  int slot = 0;
  for (TurnsOfALength& group : groups) {
    group.first_slot = slot;
    slot += static_cast<int>(group.arms.size());
  }
  return groups;
}

// The visits of one block. `visit` has its repeat, sample and block. From turn to turn the arms
// rotate, so that none is always the first.
void add_block(const ScheduleShape& shape, const std::vector<int>& wave,
               const std::vector<int>& arms, Visit visit, std::vector<Visit>& visits) {
  for (const TurnsOfALength& group : by_length(shape, arms, wave.size())) {
    size_t turn = 0;
    for (size_t begin = 0; begin < wave.size(); begin += group.length, ++turn)
      for (size_t i = 0; i < group.arms.size(); ++i) {
        visit.arm = group.arms[(i + turn) % group.arms.size()];
        visit.slot = group.first_slot + static_cast<int>(i);
        for (size_t k = begin; k < std::min(wave.size(), begin + group.length); ++k) {
          visit.prompt = wave[k];
          visits.push_back(visit);
        }
      }
  }
}

}  // namespace

std::vector<std::vector<int>> waves_of_one(int n_prompts) {
  std::vector<std::vector<int>> waves;
  for (int prompt = 0; prompt < n_prompts; ++prompt) waves.push_back({prompt});
  return waves;
}

std::vector<Visit> make_schedule(const ScheduleShape& shape, Order order, uint64_t seed) {
  EVALRUN_CHECK(!shape.waves.empty() && shape.n_arms > 0 && shape.repeats > 0 && shape.samples > 0);
  EVALRUN_CHECK(shape.turns.empty() || static_cast<int>(shape.turns.size()) == shape.n_arms);
  // A stream of its own: the order must not depend on how many numbers the sampling uses.
  ArmOrder arm_order(shape, order, base::combine_seeds({seed, 0x6f72646572ull}));
  std::vector<Visit> visits;
  const auto n_waves = static_cast<int>(shape.waves.size());
  int block = 0;
  for (int repeat = 0; repeat < shape.repeats; ++repeat)
    for (int sample = 0; sample < shape.samples; ++sample)
      for (int wave = 0; wave < n_waves; ++wave, ++block)
        add_block(shape, shape.waves[static_cast<size_t>(wave)],
                  arm_order.of(wave, repeat * shape.samples + sample),
                  {.repeat = repeat, .sample = sample, .block = block}, visits);
  if (order == Order::kSequential)  // one arm after the other within each repeat
    std::stable_sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
      return a.repeat != b.repeat ? a.repeat < b.repeat : a.arm < b.arm;
    });
  return visits;
}

}  // namespace evalrun::runners
