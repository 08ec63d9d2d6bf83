#include "runners/plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::runners {
namespace {

const ScheduleShape kShape = {.waves = waves_of_one(12), .n_arms = 4, .repeats = 4, .samples = 1};
constexpr int kShapePrompts = 12;

TEST(Schedule, EveryCellOnceForEveryOrder) {
  const ScheduleShape shape = {.waves = waves_of_one(7), .n_arms = 3, .repeats = 2, .samples = 2};
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
      EXPECT_EQ(visits[i].prompt, visits[i].block % kShapePrompts);
      EXPECT_EQ(visits[i].repeat, visits[i].block / kShapePrompts);
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
  const ScheduleShape shape = {
      .waves = waves_of_one(1200), .n_arms = 4, .repeats = 1, .samples = 1};
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
  const auto visits = make_schedule(
      {.waves = waves_of_one(3), .n_arms = 2, .repeats = 2, .samples = 1}, Order::kSequential, 5);
  std::vector<std::tuple<int, int, int>> seen, expected;
  for (const Visit& v : visits) seen.push_back({v.repeat, v.arm, v.prompt});
  for (int repeat = 0; repeat < 2; ++repeat)
    for (int arm = 0; arm < 2; ++arm)
      for (int prompt = 0; prompt < 3; ++prompt) expected.push_back({repeat, arm, prompt});
  EXPECT_EQ(seen, expected);
}

// ---- Waves --------------------------------------------------------------------------------------

// The order of runs before there were batches, written down a second time: a run of one prompt at a
// time that began then goes on in its order.
std::vector<Visit> order_by_prompts(int n_prompts, int n_arms, int repeats, int samples,
                                    Order order, uint64_t seed) {
  base::Rng rng(base::combine_seeds({seed, 0x6f72646572ull}));
  const auto drawn = [&] {
    std::vector<int> list(static_cast<size_t>(n_arms));
    std::iota(list.begin(), list.end(), 0);
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[rng.below(i)]);
    return list;
  };
  std::vector<std::vector<int>> permutations, rows;
  for (int group = 0; order == Order::kInterleaved && group * n_arms < n_prompts; ++group) {
    permutations.push_back(drawn());
    rows.push_back(drawn());
  }
  std::vector<Visit> visits;
  for (int round = 0; round < repeats * samples; ++round)
    for (int prompt = 0; prompt < n_prompts; ++prompt) {
      std::vector<int> arms(static_cast<size_t>(n_arms));
      std::iota(arms.begin(), arms.end(), 0);
      if (order == Order::kRandom) arms = drawn();
      const auto group = static_cast<size_t>(prompt / n_arms);
      for (int slot = 0; slot < n_arms; ++slot) {
        int arm = arms[static_cast<size_t>(slot)];
        if (order == Order::kInterleaved) {
          const int row = rows[group][static_cast<size_t>(prompt % n_arms)] + round;
          arm = permutations[group][static_cast<size_t>((slot + row) % n_arms)];
        }
        visits.push_back(
            {round / samples, round % samples, prompt, arm, round * n_prompts + prompt, slot});
      }
    }
  if (order == Order::kSequential)
    std::stable_sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
      return std::pair(a.repeat, a.arm) < std::pair(b.repeat, b.arm);
    });
  return visits;
}

TEST(Schedule, WavesOfOneAreTheOrderByPrompts) {
  for (const Order order : {Order::kInterleaved, Order::kRandom, Order::kSequential})
    for (const uint64_t seed : {1ull, 77ull}) {
      EXPECT_EQ(make_schedule({waves_of_one(11), 4, 3, 2}, order, seed),
                order_by_prompts(11, 4, 3, 2, order, seed))
          << to_string(order);
      EXPECT_EQ(make_schedule({waves_of_one(1), 1, 1, 1}, order, seed),
                order_by_prompts(1, 1, 1, 1, order, seed));
    }
}

// Waves take the places that prompts had, and within one each arm has all of its prompts in turn.
TEST(Schedule, ABlockIsAWave) {
  const std::vector<std::vector<int>> waves = {{0, 1, 2}, {3, 4, 5}, {6}, {7, 8, 9}, {10, 11}};
  for (const Order order : {Order::kInterleaved, Order::kRandom, Order::kSequential}) {
    std::vector<Visit> expected;
    for (const Visit& v : order_by_prompts(5, 3, 2, 2, order, 9))
      for (const int prompt : waves[static_cast<size_t>(v.prompt)]) {
        expected.push_back(v);
        expected.back().prompt = prompt;
      }
    EXPECT_EQ(make_schedule({waves, 3, 2, 2}, order, 9), expected) << to_string(order);
  }
}

TEST(Schedule, EveryArmStandsInEverySlotOfItsWavesEquallyOften) {
  std::vector<std::vector<int>> waves;
  for (int i = 0; i < 8; ++i) waves.push_back({3 * i, 3 * i + 1, 3 * i + 2});
  std::map<std::tuple<int, int, int>, int> per_repeat, per_prompt;
  for (const Visit& v : make_schedule({waves, 4, 4, 1}, Order::kInterleaved, 5)) {
    ++per_repeat[{v.repeat, v.arm, v.slot}];
    ++per_prompt[{v.prompt, v.arm, v.slot}];
  }
  EXPECT_EQ(per_repeat.size(), 4u * 4 * 4);
  for (const auto& [key, n] : per_repeat) EXPECT_EQ(n, 6);  // 24 prompts over 4 slots
  EXPECT_EQ(per_prompt.size(), 24u * 4 * 4);
  for (const auto& [key, n] : per_prompt) EXPECT_EQ(n, 1);
}

// Two arms of batch 1, three of batch 4: the wave of eight prompts is eight turns of the first and
// two of the others. Everybody has every prompt once, and arms of a size have a prompt in turn.
TEST(Schedule, ArmsOfASizeTakeTurnsWithinAWave) {
  const ScheduleShape shape = {.waves = {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12}},
                               .n_arms = 5,
                               .turns = {1, 4, 4, 1, 4}};
  const auto turn_of = [&](int arm) { return shape.turns[static_cast<size_t>(arm)]; };
  for (const Order order : {Order::kInterleaved, Order::kRandom}) {
    const std::vector<Visit> visits = make_schedule(shape, order, 3);
    ASSERT_EQ(visits.size(), 13u * 5);
    std::set<std::pair<int, int>> cells;
    std::map<std::pair<int, int>, size_t> place;  // of (arm, prompt)
    for (size_t i = 0; i < visits.size(); ++i) {
      cells.insert({visits[i].arm, visits[i].prompt});
      place[{visits[i].arm, visits[i].prompt}] = i;
    }
    EXPECT_EQ(cells.size(), visits.size());
    for (int prompt = 0; prompt < 13; ++prompt)
      for (int a = 0; a < 5; ++a)
        for (int b = 0; b < 5; ++b) {
          if (turn_of(a) != turn_of(b)) continue;
          const size_t i = place[{a, prompt}], k = place[{b, prompt}];
          const auto n_of_size = static_cast<size_t>(turn_of(a) == 1 ? 2 : 3);
          EXPECT_LE(i < k ? k - i : i - k, static_cast<size_t>(turn_of(a)) * (n_of_size - 1));
        }
    // The slots of the two sizes are apart, and within a turn each arm has its own.
    std::map<int, std::set<int>> slots;
    for (const Visit& v : visits) slots[turn_of(v.arm)].insert(v.slot);
    EXPECT_EQ(slots[1].size(), 2u);
    EXPECT_EQ(slots[4].size(), 3u);
  }
}

TEST(Schedule, NoArmIsAlwaysTheFirstInAWave) {
  std::vector<int> wave(12);
  std::iota(wave.begin(), wave.end(), 0);
  std::map<std::pair<int, int>, int> places;  // of (arm, slot)
  for (const Visit& v :
       make_schedule({.waves = {wave}, .n_arms = 3, .turns = {2, 2, 2}}, Order::kInterleaved, 3))
    ++places[{v.arm, v.slot}];
  EXPECT_EQ(places.size(), 9u);
  for (const auto& [place, n] : places) EXPECT_EQ(n, 4);  // six turns, two in each slot
}

TEST(Schedule, NothingToOrderIsAMistake) {
  EXPECT_THROW(make_schedule({{}, 1, 1, 1}, Order::kInterleaved, 1), base::InternalError);
  EXPECT_THROW(make_schedule({waves_of_one(2), 0, 1, 1}, Order::kInterleaved, 1),
               base::InternalError);
}

}  // namespace
}  // namespace evalrun::runners
