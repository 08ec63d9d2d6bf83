// Barriers over made-up places: every thread sees all that was written before, at any shape of the
// team and any number of sleepers; planted faults are seen; what docs/cpu.md counts is right.
#include "engine/cpu/barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <ostream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace evalrun::engine::cpu {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Groups of these sizes, one after another.
std::vector<int> groups_of(const std::vector<int>& sizes) {
  std::vector<int> group;
  for (size_t g = 0; g < sizes.size(); ++g)
    group.insert(group.end(), static_cast<size_t>(sizes[g]), static_cast<int>(g));
  return group;
}
std::vector<int> each_alone(int n) {
  return groups_of(std::vector<int>(static_cast<size_t>(n), 1));
}

// ---- Who waits for whom -------------------------------------------------------------------------

TEST(BarrierPlan, GroupsGatherByATreeAndLeadersMeetByDissemination) {
  const BarrierPlan plan = plan_barrier(groups_of({6, 2, 1}));
  ASSERT_EQ(plan.seats.size(), 9u);
  EXPECT_THAT(plan.seats[0].children, ElementsAre(1, 2, 4));
  EXPECT_THAT(plan.seats[1].children, IsEmpty());
  EXPECT_THAT(plan.seats[2].children, ElementsAre(3));
  EXPECT_THAT(plan.seats[4].children, ElementsAre(5));
  EXPECT_THAT(plan.seats[6].children, ElementsAre(7));
  for (const int t : {0, 1, 2, 3, 4, 5}) EXPECT_EQ(plan.seats[static_cast<size_t>(t)].leader, 0);
  EXPECT_EQ(plan.seats[7].leader, 6);
  EXPECT_EQ(plan.seats[8].leader, 8);
  // Leaders 0, 6, 8: one place before, then two.
  EXPECT_THAT(plan.seats[0].partners, ElementsAre(8, 6));
  EXPECT_THAT(plan.seats[6].partners, ElementsAre(0, 8));
  EXPECT_THAT(plan.seats[8].partners, ElementsAre(6, 0));
  EXPECT_THAT(plan.seats[7].partners, IsEmpty());
}

TEST(BarrierPlan, GroupsNeedNotBeNeighbours) {
  const BarrierPlan plan = plan_barrier(std::vector<int>{5, 2, 5, 2, 5});
  EXPECT_THAT(plan.seats[0].children, ElementsAre(2, 4));
  EXPECT_THAT(plan.seats[1].children, ElementsAre(3));
  EXPECT_THAT(plan.seats[0].partners, ElementsAre(1));
  EXPECT_THAT(plan.seats[1].partners, ElementsAre(0));
}

TEST(BarrierPlan, NodesBeforeCachesBeforeNothing) {
  const auto places = [](std::vector<int> node, std::vector<int> cluster) {
    return Places{std::move(node), std::move(cluster)};
  };
  EXPECT_EQ(meeting_groups(one_place(6)), each_alone(6));
  EXPECT_EQ(meeting_groups(places({0, 0, 1, 1}, {0, 1, 2, 3})), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(meeting_groups(places({0, 1}, {0, 1})), each_alone(2));
  // Two caches of one node: worth a hierarchy above four threads.
  EXPECT_EQ(meeting_groups(places({0, 0, 0, 0}, {0, 0, 1, 1})), each_alone(4));
  EXPECT_EQ(meeting_groups(places({0, 0, 0, 0, 0}, {0, 0, 0, 1, 1})),
            (std::vector<int>{0, 0, 0, 1, 1}));
}

// ---- What threads see ---------------------------------------------------------------------------

struct Stress {
  int rounds = 1000;
  microseconds spin{0};
  uint32_t first = 0;  // the counters' first value
  int late_every = 0;  // in every so many rounds one thread comes late, in turns
  microseconds late{300};
};

uint32_t word_of(int round, int thread, size_t word) {
  const auto x = static_cast<uint32_t>(round) * 0x9E3779B1u ^
                 (static_cast<uint32_t>(thread) << 8 | static_cast<uint32_t>(word)) * 0x85EBCA6Bu;
  return x ^ x >> 15;
}

// Every thread writes a block, meets the others and reads the blocks of all; how many words were
// not those of the round. Word: plain, so that the thread sanitizer sees a barrier that orders too
// little; atomic where a barrier is broken on purpose.
template <typename Word>
int64_t stale_words(BarrierPlan plan, const Stress& s) {
  struct alignas(64) Block {
    Word words[8];
  };
  const int n = static_cast<int>(plan.seats.size());
  Dormitory dormitory;
  Barrier barrier(std::move(plan), dormitory, s.spin, s.first);
  std::vector<Block> blocks(static_cast<size_t>(n));
  std::vector<int64_t> stale(static_cast<size_t>(n));
  const auto work = [&](int me) {
    for (int round = 1; round <= s.rounds; ++round) {
      if (s.late_every > 0 && round % s.late_every == 0 && round / s.late_every % n == me)
        std::this_thread::sleep_for(s.late);
      for (size_t w = 0; w < 8; ++w)
        blocks[static_cast<size_t>(me)].words[w] = word_of(round, me, w);
      barrier.meet(me);
      for (int t = 0; t < n; ++t)
        for (size_t w = 0; w < 8; ++w)
          stale[static_cast<size_t>(me)] +=
              blocks[static_cast<size_t>(t)].words[w] != word_of(round, t, w);
      barrier.meet(me);  // all have read
    }
    barrier.end(me);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < n; ++t) others.emplace_back(work, t);
  work(0);
  constexpr bool kWhole = std::is_same_v<Word, uint32_t>;
  int64_t sum = 0;
  // After end() the first thread may look at what the others wrote.
  if (kWhole) sum = std::accumulate(stale.begin(), stale.end(), int64_t{0});
  for (std::thread& t : others) t.join();
  return kWhole ? sum : std::accumulate(stale.begin(), stale.end(), int64_t{0});
}

struct TeamShape {
  std::string name;
  std::vector<int> group;
};
const std::vector<TeamShape>& team_shapes() {
  static const std::vector<TeamShape> all = {
      {"1x1", groups_of({1})},
      {"1x2", groups_of({2})},
      {"2x1", groups_of({1, 1})},
      {"2x2", groups_of({2, 2})},
      {"2x4", groups_of({4, 4})},
      {"3 uneven", groups_of({1, 5, 3})},
      {"5 uneven", groups_of({2, 1, 3, 1, 2})},
      {"1x7", groups_of({7})},
      {"7 alone", each_alone(7)},
      {"scattered", {0, 1, 0, 2, 1, 0, 2}},
  };
  return all;
}

TEST(Barrier, EveryThreadSeesAllThatWasWritten) {
  for (const TeamShape& s : team_shapes())
    for (const int spin : {0, 20}) {
      if (spin > 0 && s.group.size() > 2) continue;  // more threads than many machines have cores
      EXPECT_EQ(
          stale_words<uint32_t>(plan_barrier(s.group), {.rounds = 200, .spin = microseconds(spin)}),
          0)
          << s.name;
    }
}

TEST(Barrier, SixtyFourThreadsOnFourNodes) {
  EXPECT_EQ(stale_words<uint32_t>(plan_barrier(groups_of({16, 16, 16, 16})), {.rounds = 100}), 0);
}

TEST(Barrier, OthersSleepWhileOneIsLate) {
  for (const TeamShape& s : team_shapes())
    EXPECT_EQ(stale_words<uint32_t>(plan_barrier(s.group),
                                    {.rounds = 40, .late_every = 2, .late = microseconds(2000)}),
              0)
        << s.name;
}

TEST(Barrier, CountersWrapAround) {
  for (const TeamShape& s : team_shapes())
    EXPECT_EQ(stale_words<uint32_t>(plan_barrier(s.group), {.rounds = 60, .first = 0xFFFFFFD0u}), 0)
        << s.name;
}

// Faults of one thread's part. Each lets somebody through before all have come, and all still end.
TEST(Barrier, PlantedFaultsAreSeen) {
  struct Fault {
    std::string name;
    std::function<void(BarrierPlan&)> plant;
  };
  const std::vector<Fault> faults = {
      {"a leader releases one round early", [](BarrierPlan& p) { p.seats[0].partners.back() = 0; }},
      {"a leader forgets one of its group", [](BarrierPlan& p) { p.seats[4].children.pop_back(); }},
      {"a thread within the tree forgets the one below it",
       [](BarrierPlan& p) { p.seats[2].children.clear(); }},
  };
  const Stress stress{.rounds = 320, .late_every = 4};
  const std::vector<int> group = groups_of({4, 4, 4});
  EXPECT_EQ(stale_words<std::atomic<uint32_t>>(plan_barrier(group), stress), 0);
  for (const Fault& fault : faults) {
    BarrierPlan plan = plan_barrier(group);
    fault.plant(plan);
    EXPECT_GT(stale_words<std::atomic<uint32_t>>(std::move(plan), stress), 0) << fault.name;
  }
}

// ---- What docs/cpu.md counts --------------------------------------------------------------------

struct Transfers {
  int far = 0, near = 0;    // one after another, on the way to the last thread that leaves
  int all = 0, across = 0;  // of all threads, and of these from group to group
  bool operator==(const Transfers&) const = default;
};
void PrintTo(const Transfers& t, std::ostream* out) {
  *out << t.far << " far + " << t.near << " near, " << t.all << " in all, " << t.across
       << " across";
}

// All threads come at once. A far transfer takes longer than any number of near ones.
Transfers count_transfers(const BarrierPlan& plan, const std::vector<int>& place) {
  constexpr int kFar = 1000;
  const size_t n = plan.seats.size();
  Transfers sum;
  const auto transfer = [&](size_t from, size_t to) {
    const bool far = place[from] != place[to];
    ++sum.all, sum.across += far;
    return far ? kFar : 1;
  };
  std::vector<int> at(n);
  for (size_t t = n; t-- > 0;)  // those below a thread in the tree have higher numbers
    for (const int c : plan.seats[t].children) {
      const auto child = static_cast<size_t>(c);
      at[t] = std::max(at[t], at[child] + transfer(child, t));
    }
  for (size_t k = 0; k < plan.seats[0].partners.size(); ++k) {
    const std::vector<int> before = at;
    for (size_t t = 0; t < n; ++t)
      if (plan.seats[t].leader == static_cast<int>(t)) {
        const auto partner = static_cast<size_t>(plan.seats[t].partners[k]);
        at[t] = std::max(at[t], before[partner] + transfer(partner, t));
      }
  }
  for (size_t t = 0; t < n; ++t)
    if (const auto leader = static_cast<size_t>(plan.seats[t].leader); leader != t)
      at[t] = at[leader] + transfer(leader, t);
  const int last = *std::max_element(at.begin(), at.end());
  sum.far = last / kFar, sum.near = last % kFar;
  return sum;
}

TEST(Barrier, TransfersAreThoseOfTheDocs) {
  struct Case {
    std::vector<int> place;
    Transfers alone, in_groups;
  };
  const std::vector<Case> cases = {
      {groups_of({4, 4}), {2, 1, 24, 14}, {1, 3, 14, 2}},
      {groups_of({8, 8}), {2, 2, 64, 30}, {1, 4, 30, 2}},
      {groups_of({32, 32}), {2, 4, 384, 126}, {1, 6, 126, 2}},
      {groups_of({16, 16, 16, 16}), {3, 3, 384, 188}, {2, 5, 128, 8}},
      {groups_of(std::vector<int>(8, 8)), {4, 2, 384, 248}, {3, 4, 136, 24}},
  };
  for (const Case& c : cases) {
    const int n = static_cast<int>(c.place.size());
    EXPECT_EQ(count_transfers(plan_barrier(each_alone(n)), c.place), c.alone) << n;
    EXPECT_EQ(count_transfers(plan_barrier(c.place), c.place), c.in_groups) << n;
  }
}

}  // namespace
}  // namespace evalrun::engine::cpu
