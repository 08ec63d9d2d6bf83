#include "runners/plan/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace evalrun::runners {
namespace {

const ScheduleShape kShape = {.n_prompts = 12, .n_arms = 4, .repeats = 4, .samples = 1};

TEST(Schedule, EveryCellOnceForEveryOrder) {
  const ScheduleShape shape = {.n_prompts = 7, .n_arms = 3, .repeats = 2, .samples = 2};
  for (const Order order : {Order::kInterleaved, Order::kRandom, Order::kSequential}) {
    std::set<std::tuple<int, int, int, int>> cells;
    const auto visits = make_schedule(shape, order, 5);
    for (const Visit& v : visits) cells.insert({v.repeat, v.sample, v.prompt, v.arm});
    EXPECT_EQ(visits.size(), 7u * 3 * 2 * 2);
    EXPECT_EQ(cells.size(), visits.size());
  }
}

TEST(Schedule, ArmsOfAPromptStandTogetherInOneBlock) {
  for (const Order order : {Order::kInterleaved, Order::kRandom}) {
    const auto visits = make_schedule(kShape, order, 5);
    for (size_t i = 0; i < visits.size(); ++i) {
      EXPECT_EQ(visits[i].block, static_cast<int>(i) / kShape.n_arms);
      EXPECT_EQ(visits[i].slot, static_cast<int>(i) % kShape.n_arms);
      EXPECT_EQ(visits[i].prompt, visits[i].block % kShape.n_prompts);
      EXPECT_EQ(visits[i].repeat, visits[i].block / kShape.n_prompts);
    }
  }
}

TEST(Schedule, EveryArmStandsInEverySlotEquallyOften) {
  std::map<std::tuple<int, int, int>, int> per_repeat, per_prompt;
  for (const Visit& v : make_schedule(kShape, Order::kInterleaved, 5)) {
    ++per_repeat[{v.repeat, v.arm, v.slot}];
    ++per_prompt[{v.prompt, v.arm, v.slot}];
  }
  // 12 prompts over 4 slots in each repeat; 4 repeats over 4 slots for each prompt.
  EXPECT_EQ(per_repeat.size(), 4u * 4 * 4);
  for (const auto& [key, n] : per_repeat) EXPECT_EQ(n, 3);
  EXPECT_EQ(per_prompt.size(), 12u * 4 * 4);
  for (const auto& [key, n] : per_prompt) EXPECT_EQ(n, 1);
}

TEST(Schedule, ArmsPrecedeEachOtherAboutEquallyOften) {
  // Rotations alone would keep one arm right after another for ever; the drawn permutations must
  // not. In each of 300 groups an ordered pair stands three times (its arms are neighbours in the
  // permutation, probability 1/3) or never: mean 300, variance 300 * 2, four standard
  // deviations 98.
  const ScheduleShape shape = {.n_prompts = 1200, .n_arms = 4, .repeats = 1, .samples = 1};
  const auto visits = make_schedule(shape, Order::kInterleaved, 11);
  std::map<std::pair<int, int>, int> behind;
  for (size_t i = 1; i < visits.size(); ++i)
    if (visits[i].block == visits[i - 1].block) ++behind[{visits[i - 1].arm, visits[i].arm}];
  EXPECT_EQ(behind.size(), 12u);
  for (const auto& [pair, n] : behind) EXPECT_NEAR(n, 300, 98);
}

TEST(Schedule, SameSeedSameOrderOtherSeedOtherOrder) {
  for (const Order order : {Order::kInterleaved, Order::kRandom}) {
    EXPECT_EQ(make_schedule(kShape, order, 5), make_schedule(kShape, order, 5));
    EXPECT_NE(make_schedule(kShape, order, 5), make_schedule(kShape, order, 6));
  }
}

TEST(Schedule, SequentialRunsOneArmAfterTheOther) {
  const auto visits = make_schedule({.n_prompts = 3, .n_arms = 2, .repeats = 2, .samples = 1},
                                    Order::kSequential, 5);
  std::vector<std::tuple<int, int, int>> seen, expected;
  for (const Visit& v : visits) seen.push_back({v.repeat, v.arm, v.prompt});
  for (int repeat = 0; repeat < 2; ++repeat)
    for (int arm = 0; arm < 2; ++arm)
      for (int prompt = 0; prompt < 3; ++prompt) expected.push_back({repeat, arm, prompt});
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace evalrun::runners
